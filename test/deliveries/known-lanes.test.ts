import { afterAll, beforeAll, expect, test } from 'vitest'
import { sendThrough } from '../../db/batch.ts'
import { queueMovedStatement } from '../../src/deliveries/lanes-repository.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { HandDaemon } from '../support/hand-daemon.ts'

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

const knex = () => db.database.knex

/** A webhook and a daemon that has recorded a success of it; `next` is a further copy of it. */
async function knownWebhook() {
  const webhook = await world.webhook({ endpoint: 'https://lims.example.in/hooks' })
  const daemon = new HandDaemon(world)
  const next = async () => {
    const event = await world.event()
    await daemon.route()
    return daemon.copyOf(webhook.id, event.id)
  }
  const first = await next()
  await daemon.take(webhook.id)
  await daemon.record([{ copy: first, ok: true }])
  return { webhook, daemon, next, first }
}

const seqs = (webhookId: string) => knex()('attempts').where({ webhook_id: webhookId }).orderBy('seq').pluck('seq')
const lastSeq = async (webhookId: string) =>
  Number((await knex()('lanes').where({ webhook_id: webhookId }).first('last_seq')).last_seq)

test('successes of a webhook that is known as healthy need no lock of its row, and are numbered without a gap', async () => {
  const { webhook, daemon, next } = await knownWebhook()
  const copies = [await next(), await next(), await next()]
  const trx = await knex().transaction()
  await trx('webhooks').where({ id: webhook.id }).forUpdate().first('id')
  const recorded = await daemon.record(copies.slice(0, 2).map((copy) => ({ copy, ok: true })))
  await trx.rollback()
  expect(recorded).toMatchObject({ healthChanges: [], exhausted: 0 })
  await daemon.record([{ copy: copies[2]!, ok: true }])
  expect((await seqs(webhook.id)).map(Number)).toEqual([1, 2, 3, 4])
  expect(await lastSeq(webhook.id)).toBe(4)
  expect(await knex()('delivery_queue').where({ webhook_id: webhook.id })).toEqual([])
  expect(await knex()('deliveries').where({ webhook_id: webhook.id }).pluck('status')).toEqual(
    Array(4).fill('delivered'),
  )
})

test('a webhook that failed under another daemon since then is healed by the next success', async () => {
  const { webhook, daemon, next } = await knownWebhook()
  const [failed, copy] = [await next(), await next()]
  const other = new HandDaemon(world)
  const own = (token: string) => knex()('lanes').where({ webhook_id: webhook.id }).update({ owner: token })
  await own(other.token)
  const change = (to: string) => ({ healthChanges: [{ webhookId: webhook.id, to }] })
  expect(await other.record([{ copy: failed, ok: false }])).toMatchObject(change('failing'))
  await own(daemon.token)
  expect(await daemon.record([{ copy, ok: true }])).toMatchObject(change('healthy'))
  expect(await knex()('webhooks').where({ id: webhook.id }).pluck('first_failure_at')).toEqual([null])
  expect((await seqs(webhook.id)).map(Number)).toEqual([1, 2, 3])
})

test('a failure of a webhook that is known as healthy is judged, and so is the success after it', async () => {
  const { webhook, daemon, next } = await knownWebhook()
  const copies = [await next(), await next()]
  const failed = await daemon.record([{ copy: copies[0]!, ok: false }])
  expect(failed.healthChanges).toEqual([{ webhookId: webhook.id, to: 'failing' }])
  const healed = await daemon.record([{ copy: copies[1]!, ok: true }])
  expect(healed.healthChanges).toEqual([{ webhookId: webhook.id, to: 'healthy' }])
  expect(await lastSeq(webhook.id)).toBe(3)
})

test('of a queue that somebody else changed since it was read nothing is removed but what was sent', async () => {
  const { webhook, daemon } = await knownWebhook()
  const here = { webhook_id: webhook.id }
  for (let n = 0; n < 21; n++) await world.event()
  await daemon.route()
  // One that is still on its way, with a time and an id between theirs.
  const late = (await daemon.waiting(webhook.id))[9]!
  const [row] = await knex()('delivery_queue').where({ ...here, event_id: late.eventId })
  await knex()('delivery_queue')
    .where({ ...here, event_id: late.eventId })
    .delete()
  const { queue_moves: queueMoves } = await knex()('lanes').where(here).first('queue_moves')
  const copies = (await daemon.waiting(webhook.id)).map((copy, n) => ({ ...copy, place: n + 1, queueMoves }))
  // As an erasure does it, whose lane goes on sending from what it has read until it hears of it.
  await knex()('delivery_queue')
    .where({ ...here, event_id: copies[14]!.eventId })
    .update({ due_at: new Date(row.due_at.getTime() + 1) })
  await knex().transaction((trx) => sendThrough(trx)([queueMovedStatement([webhook.id])]))
  await knex()('delivery_queue').insert(row)
  for (const part of [copies.slice(0, 4), copies.slice(4)]) {
    await daemon.record(part.map((copy) => ({ copy, ok: true })))
  }
  expect(await knex()('delivery_queue').where(here).pluck('event_id')).toEqual([late.eventId])
  expect(await knex()('deliveries').where(here).count({ n: '*' })).toEqual([{ n: 21 }])
})

test('of a lane that has gone nothing is written, and none is made', async () => {
  const { webhook, daemon, next } = await knownWebhook()
  const copy = await next()
  await knex()('lanes').where({ webhook_id: webhook.id }).delete()
  expect([...(await daemon.record([{ copy, ok: true }])).lostWebhookIds]).toEqual([webhook.id])
  expect(await knex()('lanes').where({ webhook_id: webhook.id })).toEqual([])
  expect((await seqs(webhook.id)).map(Number)).toEqual([1])
})
