/**
 * The fan-out must not depend on the server's statistics. Where all events are of one lab, or when the table has just been filled, they
 * have led MariaDB to read all events of the lab for each of its webhooks.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { newId } from '../../src/ids.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { StatementRecorder } from '../support/statement-recorder.ts'

const WEBHOOKS = 50
const EVENTS = 3000
/** Of those that is fanned out; for few of them no server begins elsewhere. */
const FANNED_OUT = 300

let db: TestDatabase
let world: DeliveryWorld
const recorder = new StatementRecorder()

beforeAll(async () => {
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
})
afterAll(async () => {
  recorder.stop()
  await world.close()
  await db.close()
})

/** They stay those of empty tables. */
async function freezeStatistics(): Promise<void> {
  for (const table of ['events', 'webhook_events', 'webhooks']) {
    await db.database.knex.raw(`ALTER TABLE ${table} STATS_PERSISTENT = 1, STATS_AUTO_RECALC = 0`)
    await db.database.knex.raw(`TRUNCATE TABLE ${table}`)
  }
}

/** The key by which each table is read, in the order in which they are. */
async function keysOf(sql: string): Promise<Record<string, string>> {
  const [plan] = await db.database.knex.raw(`EXPLAIN FORMAT=TRADITIONAL ${sql.replaceAll('?', '\\?')}`)
  const tables = (plan as Record<string, string>[]).filter((row) => /^(e|s|w|cs|c)$/.test(row.table!))
  return Object.fromEntries(tables.map((row) => [row.table!, row.key!]))
}

test('a fan-out begins with its events, whatever the statistics say', async () => {
  const { knex } = db.database
  await freezeStatistics()
  for (let n = 0; n < WEBHOOKS; n++) {
    await world.webhook({ endpoint: `https://partner.example.com/${n}`, events: ['lead.created', 'quotation.send'] })
  }
  const ids = Array.from({ length: EVENTS }, () => newId(world.clock.nowMs()))
  const event = { account_id: world.accountId, lab_id: world.labId, type: 'lead.created' }
  // The others are from before the webhooks.
  const recordedAt = (n: number) => new Date(world.clock.nowMs() - (n < FANNED_OUT ? 0 : 3_600_000))
  await knex.batchInsert('events', ids.map((id, n) => ({ ...event, id, subject_id: id, recorded_at: recordedAt(n) })), 500) // prettier-ignore
  await knex.batchInsert('event_bodies', ids.map((id) => ({ event_id: id, body: '{}' })), 500) // prettier-ignore
  await knex.batchInsert('unrouted_events', ids.slice(0, FANNED_OUT).map((id) => ({ event_id: id }))) // prettier-ignore
  await world.message()
  expect((await world.route()).webhookIds).toHaveLength(WEBHOOKS)
  recorder.stop()

  const fanOuts = recorder.statements.filter((sql) => sql.startsWith('INSERT INTO delivery_queue'))
  expect(fanOuts).toHaveLength(2)
  const keys = { e: 'PRIMARY', s: 'webhook_events_routing', w: 'PRIMARY' }
  const [events, messages] = await Promise.all(fanOuts.map(keysOf))
  expect(Object.entries(events!)).toEqual(Object.entries(keys))
  expect(messages).toEqual({ ...keys, cs: 'webhook_events_routing', c: 'PRIMARY' })
  // The check itself: left to choose, the server does not begin with the events.
  const unsaid = fanOuts[0]!.replaceAll('STRAIGHT_JOIN', 'JOIN').replaceAll(/FORCE INDEX \(\w+\)/g, '')
  expect(Object.entries(await keysOf(unsaid))).not.toEqual(Object.entries(keys))
}, 30_000)
