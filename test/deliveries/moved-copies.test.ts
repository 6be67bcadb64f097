/**
 * Copies that others take out of a queue, or give another time, while attempts of them are under way, and as many that come to stand
 * where those stood: by their number alone the recorder could not tell them apart.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { BatchPool } from '../../db/batch.ts'
import { moveBackWithClock } from '../../src/deliveries/clock-set-back-repository.ts'
import type { PendingDelivery } from '../../src/deliveries/delivery-queue-repository.ts'
import { eraseEvents } from '../../src/erasure/erased-events-repository.ts'
import { newId } from '../../src/ids.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { HandDaemon } from '../support/hand-daemon.ts'

const COPIES = 21
const HOUR_MS = 3_600_000

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

const queue = () => db.database.knex('delivery_queue')

/**
 * A daemon that knows the webhook as a healthy one and has read copies that all became due in one moment, and as many others whose
 * ids lie between theirs, which are due a day later.
 */
async function readCopies(dueAt: Date) {
  const { id } = await world.webhook({ endpoint: `https://lims.example.in/${newId(0)}` })
  const daemon = new HandDaemon(world)
  await world.event()
  await daemon.route()
  expect(await daemon.take(id)).toBe(true)
  await daemon.record((await daemon.waiting(id)).map((copy) => ({ copy, ok: true })))
  for (let n = 0; n < 2 * COPIES; n++) await world.event()
  await daemon.route()
  await queue().where({ webhook_id: id }).update({ due_at: dueAt })
  const all = await daemon.waiting(id)
  expect(all).toHaveLength(2 * COPIES)
  const copies = all.filter((_, n) => n % 2 === 0).map((copy, n) => ({ ...copy, place: n + 1 }))
  const others = all.filter((_, n) => n % 2 === 1)
  const otherIds = others.map(({ eventId }) => eventId)
  const come = (eventIds: string[], at: Date) =>
    queue().where({ webhook_id: id }).whereIn('event_id', eventIds).update({ due_at: at })
  await come(otherIds, new Date(dueAt.getTime() + 24 * HOUR_MS))
  const waiting = (): Promise<string[]> => queue().where({ webhook_id: id }).orderBy('event_id').pluck('event_id')
  const delivered = (): Promise<string[]> =>
    db.database.knex('deliveries').where({ webhook_id: id, status: 'delivered' }).orderBy('event_id').pluck('event_id')
  const end = async () => {
    await daemon.record((await daemon.waiting(id)).map((copy) => ({ copy, ok: true })))
    await db.database.knex('lanes').where({ webhook_id: id }).update({ owner: null })
  }
  return { daemon, copies, otherIds, come, waiting, delivered, end }
}

const idsOf = (copies: PendingDelivery[]) => copies.map(({ eventId }) => eventId)

test('one is erased while another comes to stand beside it: it waits on', async () => {
  const dueAt = world.clock.now()
  const { daemon, copies, otherIds, come, waiting, delivered, end } = await readCopies(dueAt)
  const erased = copies[7]!.eventId
  await db.database.transaction((trx) => eraseEvents(trx, newId(world.clock.nowMs()), [erased], world.clock.now()))
  await come(otherIds.slice(11, 12), dueAt)
  await daemon.record(copies.map((copy) => ({ copy, ok: true })))
  expect(await waiting()).toEqual(otherIds)
  expect((await delivered()).slice(1)).toEqual(idsOf(copies))
  await end()
})

/** As if all this took place in one moment of the server's clock. */
function frozenAt(batch: BatchPool, at: Date): BatchPool {
  return {
    ...batch,
    transaction: (work) =>
      batch.transaction(async (send) => {
        await send([{ sql: 'SET timestamp = ?', values: [at.getTime() / 1000] }])
        const result = await work(send)
        await send([{ sql: 'SET timestamp = DEFAULT' }])
        return result
      }),
  }
}

test('all are moved back with the clock, and others to where they stood: those wait on', async () => {
  // Later than all that is due already.
  const now = new Date(world.clock.nowMs() + 60_000)
  const after = (hours: number) => new Date(now.getTime() + hours * HOUR_MS)
  const { daemon, copies, otherIds, come, waiting, delivered, end } = await readCopies(after(1))
  // One of them and the last one that was read change places, so that as many stand there afterwards.
  const coming = otherIds.slice(0, -1)
  await come(coming, after(2))
  await come(otherIds.slice(-1), after(1))
  const { webhookId, eventId } = copies.at(-1)!
  await queue()
    .where({ webhook_id: webhookId, event_id: eventId })
    .update({ due_at: after(2) })
  const { knex, batch } = db.database
  await knex('purge_runs')
    .insert({ name: 'clock', due_at: after(1) })
    .onConflict()
    .merge()
  const moved = await moveBackWithClock(frozenAt(batch, now), undefined, 0)
  expect(moved).toEqual({ byMs: HOUR_MS, deliveries: 2 * COPIES })
  await daemon.record(copies.map((copy) => ({ copy, ok: true })))
  expect(await waiting()).toEqual(otherIds)
  expect((await delivered()).slice(1)).toEqual(idsOf(copies))
  await end()
})
