/**
 * The times by which a webhook gets an event or does not, where the database's clock is behind what was noted before.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { COMMIT } from '../../db/batch.ts'
import type { RecordedEvent } from '../../src/events/event-types.ts'
import { recordEventStatements } from '../../src/events/events-repository.ts'
import { newId } from '../../src/ids.ts'
import { recordDeletion, recordReactivation } from '../../src/webhooks/webhooks-repository.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'

let db: TestDatabase
let world: DeliveryWorld

beforeAll(async () => {
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
})
afterAll(async () => {
  await world.close()
  await db.close()
})

const endpoint = 'https://partner.example.com/'
const doctorId = newId(12)

describe('by a clock that is behind what was noted for a webhook', () => {
  const ahead = (seconds: number) => db.database.knex.raw('UTC_TIMESTAMP(6) + INTERVAL ? SECOND', [seconds])
  const past = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

  const record = (events: RecordedEvent[]) =>
    db.database.batch.transaction((send) => send([...recordEventStatements(events), COMMIT]))
  const eventOf = (labId: string): RecordedEvent => {
    const id = newId(world.clock.nowMs())
    const parties = { corporateId: null, doctorId, hospitalId: null }
    return { id, accountId: world.accountId, labId, type: 'lead.created', subjectId: id, ...parties, body: Buffer.from('{}') } // prettier-ignore
  }

  test('a webhook gets what was recorded after its beginning, also where the fan-out comes when that time has come again', async () => {
    const { knex } = db.database
    const labId = newId(126)
    const webhook = await world.webhook({ endpoint, labId })
    await knex('webhooks')
      .where({ id: webhook.id })
      .update({ active_from: ahead(1) })
    const events = [await world.event({ labId }), await world.event({ labId })]
    // Begun later, be the clock as it is.
    const second = await world.webhook({ endpoint, labId })
    const after = await world.event({ labId })
    await past(1100)
    const third = await world.webhook({ endpoint, labId })
    await world.route()
    const of = async (id: string) => (await world.copiesOf(id)).map((row) => row.webhook_id).sort()
    for (const event of events) expect(await of(event.id)).toEqual([webhook.id])
    expect(await of(after.id)).toEqual([webhook.id, second.id].sort())
    expect((await knex('delivery_queue').where({ webhook_id: third.id })).length).toBe(0)
  })

  test('a webhook gets nothing of after its end, and what came in between is not its own when it begins again', async () => {
    const { knex } = db.database
    const labId = newId(127)
    const webhook = await world.webhook({ endpoint, labId })
    await world.autoDeleteWebhook(webhook.id)
    await knex('webhooks')
      .where({ id: webhook.id })
      .update({ inactive_from: ahead(7200) })
    const meanwhile = await world.event({ labId })
    await db.database.transaction((trx) => recordReactivation(trx, webhook.id, world.clock.now()))
    const after = await world.event({ labId })
    await world.route()
    expect(await world.copiesOf(meanwhile.id)).toEqual([])
    expect(await world.copiesOf(after.id)).toHaveLength(1)
    const times = knex('webhook_inactivity').where({ webhook_id: webhook.id }).whereRaw('active_from > inactive_from')
    expect(await times).toHaveLength(1)
    await db.database.transaction((trx) => recordDeletion(trx, webhook.id, world.clock.now()))
    const { active_from: from, inactive_from: until } = await knex('webhooks').where({ id: webhook.id }).first()
    expect(until >= from).toBe(true)
    const last = await world.event({ labId })
    await world.route()
    expect(await world.copiesOf(last.id)).toEqual([])
  })

  test('a webhook that begins gets nothing of what waits for its fan-out since before, whatever the clock was then', async () => {
    const { knex } = db.database
    const labId = newId(136)
    const webhook = await world.webhook({ endpoint, labId })
    await world.autoDeleteWebhook(webhook.id)
    // Then the clock was set back by two hours, and nobody had fanned it out.
    const meanwhile = { ...eventOf(labId), id: newId(world.clock.nowMs() + 7_200_000) }
    await record([meanwhile])
    await knex('events')
      .where({ id: meanwhile.id })
      .update({ recorded_at: ahead(7200) })
    await db.database.transaction((trx) => recordReactivation(trx, webhook.id, world.clock.now()))
    await world.webhook({ endpoint, labId })
    const after = await world.event({ labId })
    await world.route()
    expect(await world.copiesOf(meanwhile.id)).toEqual([])
    expect(await world.copiesOf(after.id)).toHaveLength(2)
  })

  test('so does one whose id was given before its request had waited, and what a webhook got before its end is its own', async () => {
    const { knex } = db.database
    const labId = newId(137)
    const webhook = await world.webhook({ endpoint, labId })
    const early = { ...eventOf(labId), id: newId(world.clock.nowMs() - 1500) }
    await record([early])
    await knex('events')
      .where({ id: early.id })
      .update({ recorded_at: ahead(2) })
    await db.database.transaction((trx) => recordDeletion(trx, webhook.id, world.clock.now()))
    await world.webhook({ endpoint, labId })
    await world.route()
    // To be discarded, and none to the other one.
    const { epoch } = await knex('webhooks').where({ id: webhook.id }).first('epoch')
    expect(await world.copiesOf(early.id)).toEqual([{ webhook_id: webhook.id, epoch: epoch - 1 }])
  })

  test('a webhook that is deleted got what was recorded before, and gets nothing of what comes', async () => {
    const { knex } = db.database
    const labId = newId(129)
    const webhook = await world.webhook({ endpoint, labId })
    const other = await world.webhook({ endpoint, labId })
    await knex('webhooks')
      .where({ id: other.id })
      .update({ active_from: ahead(7200) })
    const before = await world.event({ labId })
    await db.database.transaction((trx) => recordDeletion(trx, webhook.id, world.clock.now()))
    const after = await world.event({ labId })
    await world.route()
    const { epoch } = await knex('webhooks').where({ id: webhook.id }).first('epoch')
    const ofWebhook = async (id: string) => (await world.copiesOf(id)).filter((row) => row.webhook_id === webhook.id)
    expect(await ofWebhook(before.id)).toEqual([{ webhook_id: webhook.id, epoch: epoch - 1 }])
    expect(await ofWebhook(after.id)).toEqual([])
  })

  test('of events that are recorded together each has the time of its own lab', async () => {
    const { knex } = db.database
    const labIds = [130, 131, 132, 133].map((n) => newId(n))
    for (const labId of labIds.slice(0, 3)) await world.webhook({ endpoint, labId })
    const [begun, ended] = await Promise.all([labIds[0], labIds[1]].map((lab_id) => knex('webhooks').where({ lab_id }).first())) // prettier-ignore
    await knex('webhooks')
      .where({ id: begun.id })
      .update({ active_from: ahead(3600) })
    await world.deleteWebhook(ended.id, labIds[1])
    await knex('webhooks')
      .where({ id: ended.id })
      .update({ inactive_from: ahead(7200) })
    const events = [...labIds, labIds[0]!].map(eventOf)
    await record(events)
    const rows = await knex('events')
      .whereIn(
        'id',
        events.map(({ id }) => id),
      ) // prettier-ignore
      .select('id', 'lab_id', 'doctor_id', 'hospital_id', 'trace_parent')
      .select(knex.raw('TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(6), recorded_at) AS ahead'))
    const found = new Map(rows.map(({ id, ...row }) => [id, row]))
    for (const [n, [from, to]] of [
      [3590, 3600],
      [7190, 7200],
      [-10, 0],
      [-10, 0],
      [3590, 3600],
    ].entries()) {
      // prettier-ignore
      const { ahead: seconds, ...row } = found.get(events[n]!.id)!
      expect(row).toEqual({ lab_id: events[n]!.labId, doctor_id: doctorId, hospital_id: null, trace_parent: null })
      expect(seconds).toBeGreaterThanOrEqual(from!)
      expect(seconds).toBeLessThanOrEqual(to!)
    }
  })

  test('whoever records several events waits for no webhook that is being changed', async () => {
    const labIds = [newId(134), newId(135)]
    const webhooks = [await world.webhook({ endpoint, labId: labIds[0]! }), await world.webhook({ endpoint, labId: labIds[1]! })] // prettier-ignore
    await db.database.transaction(async (trx) => {
      const ids = webhooks.map(({ id }) => id)
      await trx('webhooks')
        .whereIn('id', ids)
        .update({ active_from: ahead(1) })
      await record(labIds.map(eventOf))
    })
    await world.route()
  })

  test('whoever records an event waits for no webhook that is being changed', async () => {
    const labId = newId(128)
    const webhook = await world.webhook({ endpoint, labId })
    await db.database.transaction(async (trx) => {
      await trx('webhooks')
        .where({ id: webhook.id })
        .update({ active_from: ahead(1) })
      await world.event({ labId })
    })
    await world.route()
  })
})
