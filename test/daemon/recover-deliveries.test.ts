import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { recoverDeliveries } from '../../daemon/jobs/recover-deliveries.ts'
import { findLogWebhook } from '../../src/deliveries/delivery-log-webhooks-repository.ts'
import { findRecovery } from '../../src/deliveries/recovery-repository.ts'
import { startRecovery } from '../../src/deliveries/recovery.ts'
import type { Recovery } from '../../src/deliveries/recovery-rules.ts'
import { createLogger } from '../../src/logger.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld, type TestWebhook } from '../support/delivery-world.ts'
import { buildEnded, buildEvent } from '../support/logged-deliveries.ts'

const HOUR_MS = 3_600_000

let db: TestDatabase
let world: DeliveryWorld

beforeAll(async () => {
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
})
afterEach(async () => {
  for (const table of ['delivery_queue', 'deliveries', 'events', 'event_bodies', 'recoveries']) await knex()(table).delete() // prettier-ignore
})
afterAll(async () => {
  await world.close()
  await db.close()
})

const knex = () => db.database.knex
const run = (stopping = () => false) =>
  recoverDeliveries({ database: db.database, clock: world.clock, log: createLogger('daemon', 'silent'), stopping })()
const stateOf = async ({ id }: Recovery) => (await findRecovery(knex(), world.accountId, id))!.state
const waiting = ({ id }: TestWebhook): Promise<string[]> =>
  knex()('delivery_queue').where({ webhook_id: id }).orderBy('event_id').pluck('event_id')

/** A webhook of which so many deliveries have failed, and the order to send them again. */
async function ordered(failed: number) {
  const webhook = await world.webhook({ endpoint: 'https://lims.example.in/hooks' })
  const atMs = world.clock.nowMs() - 2 * HOUR_MS
  await knex()('webhooks').where({ id: webhook.id }).update({ active_from: new Date(atMs - HOUR_MS), created_at: new Date(atMs - HOUR_MS) }) // prettier-ignore
  const eventIds: string[] = []
  for (let n = 0; n < failed; n++) {
    const eventId = await buildEvent(db.database, { accountId: world.accountId, labId: world.labId, atMs: atMs + n })
    await buildEnded(knex(), webhook.id, eventId, 'exhausted', 9)
    eventIds.push(eventId)
  }
  const logged = (await findLogWebhook(knex(), world.accountId, world.labId, webhook.id, 'whole_lab'))!
  const since = new Date(atMs - 1000)
  const recovery = await db.database.transaction((trx) => startRecovery(trx, logged, since, world.clock.now()))
  return { webhook, eventIds: eventIds.sort(), recovery }
}

test('every recovery that was ordered is taken to its end, each for its own webhook', async () => {
  const [first, second] = [await ordered(3), await ordered(2)]
  await run()
  expect(await Promise.all([first, second].map(({ recovery }) => stateOf(recovery)))).toEqual([
    'completed',
    'completed',
  ])
  expect(await waiting(first.webhook)).toEqual(first.eventIds)
  expect(await waiting(second.webhook)).toEqual(second.eventIds)
})

test('one is not kept from beginning by any number of others that wait', async () => {
  // Old copies of the webhook may still have to be discarded: its recovery waits for that.
  const waits = await Promise.all(Array.from({ length: 60 }, () => ordered(0)))
  await knex()('webhooks').whereIn('id', waits.map(({ webhook }) => webhook.id)).update({ epoch: 2 }) // prettier-ignore
  const { webhook, eventIds, recovery } = await ordered(2)
  await run()
  expect([await stateOf(waits[0]!.recovery), await stateOf(waits[59]!.recovery)]).toEqual(['running', 'running'])
  expect([await stateOf(recovery), await waiting(webhook)]).toEqual(['completed', eventIds])
})

test('a daemon that is about to end leaves it to the next one', async () => {
  const { webhook, eventIds, recovery } = await ordered(2)
  await run(() => true)
  expect([await stateOf(recovery), await waiting(webhook)]).toEqual(['running', []])
  await run()
  expect([await stateOf(recovery), await waiting(webhook)]).toEqual(['completed', eventIds])
})
