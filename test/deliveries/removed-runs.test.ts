import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { COMMIT } from '../../db/batch.ts'
import { isRemoved, removalOf, type QueuedCopy } from '../../src/deliveries/removed-runs.ts'
import { newId } from '../../src/ids.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'

const AT = new Date('2026-11-21T10:00:00.123Z')

let db: TestDatabase
beforeAll(async () => {
  db = await openTestDatabase()
})
const empty = () => db.database.knex('delivery_queue').delete()
beforeEach(empty)
afterAll(async () => {
  await empty()
  await db.close()
})

function copiesOf(webhookId: string, count: number, dueAt = AT): QueuedCopy[] {
  const eventIds = Array.from({ length: count }, () => newId(AT.getTime())).sort()
  return eventIds.map((eventId, n) => ({ webhookId, eventId, dueAt, place: n + 1 }))
}

async function queue(copies: QueuedCopy[]): Promise<void> {
  await db.database.knex('delivery_queue').insert(
    copies.map(({ webhookId, eventId, dueAt }) => ({ webhook_id: webhookId, event_id: eventId, due_at: dueAt, epoch: 1 })),
  ) // prettier-ignore
}

/** @returns whether it says that it has found all; otherwise nothing goes */
async function remove(copies: QueuedCopy[]): Promise<boolean> {
  const removal = removalOf(copies)
  if (removal.statements.length === 0) return isRemoved(removal, [])
  return db.database.batch.transaction(async (send) => {
    const isDone = isRemoved(removal, await send(removal.statements))
    if (isDone) await send([COMMIT])
    return isDone
  })
}

const waiting = async () =>
  new Set((await db.database.knex('delivery_queue').select('event_id')).map((row) => row.event_id as string))

const eventIdsOf = (copies: QueuedCopy[]) => new Set(copies.map(({ eventId }) => eventId))

const shuffled = <T>(all: T[]) => all.toSorted(() => Math.random() - 0.5)

test('copies that stand next to each other go in one statement, whatever the order in which they ended', async () => {
  const copies = copiesOf(newId(1), 300)
  await queue(copies)
  expect(removalOf(copies).statements).toHaveLength(1)
  expect(await remove(shuffled(copies))).toBe(true)
  expect(await waiting()).toEqual(new Set())
})

test('what stands without anything in between goes without a list of its ids, and what is left with one', async () => {
  const copies = copiesOf(newId(1), 300)
  await queue(copies)
  // Two stretches, and in front of, between and behind them what has not ended, here and there.
  const ended = copies.filter((_, n) => (n < 30 || n >= 270 || (n >= 130 && n < 150) ? n % 3 > 0 : true))
  const statements = removalOf(ended).statements
  expect(statements.map(({ sql }) => sql.includes(' IN '))).toEqual([false, false, true])
  expect(await remove(shuffled(ended))).toBe(true)
  expect(await waiting()).toEqual(eventIdsOf(copies.filter((copy) => !ended.includes(copy))))
})

test('it says when a copy has come in between since it was read, and nothing goes', async () => {
  const [late, ...read] = copiesOf(newId(1), 31).toSorted((a, b) => Math.abs(a.place - 9) - Math.abs(b.place - 9))
  await queue([late!, ...read])
  // As it was read: without the late one.
  const known = read.toSorted((a, b) => a.place - b.place).map((copy, n) => ({ ...copy, place: n + 1 }))
  expect(removalOf(known).statements.map(({ values }) => values!.length)).toEqual([4])
  expect(await remove(shuffled(known))).toBe(false)
  expect((await waiting()).size).toBe(31)
})

test('what stands in between and has not ended stays: under way, or routed since then', async () => {
  const copies = copiesOf(newId(1), 300)
  await queue(copies)
  const stays = copies.filter((_, n) => n % 7 === 3)
  const ended = copies.filter((_, n) => n % 7 !== 3)
  // As they look when the others were not there yet when the lane read.
  for (const copy of stays) copy.place = 0
  expect(await remove(shuffled(ended))).toBe(true)
  expect(await waiting()).toEqual(eventIdsOf(stays))
})

test('of several webhooks with the same events each loses its own copies', async () => {
  const first = copiesOf(newId(1), 40)
  const others = [newId(2), newId(3)].map((webhookId) => first.map((copy) => ({ ...copy, webhookId })))
  const all = [...first, ...others.flat()]
  await queue(all)
  expect(await remove(shuffled([...first.slice(0, 20), ...others[0]!.slice(10)]))).toBe(true)
  const { knex } = db.database
  const count = async (webhookId: string) => (await knex('delivery_queue').where({ webhook_id: webhookId })).length
  expect(await Promise.all([first, ...others].map((copies) => count(copies[0]!.webhookId)))).toEqual([20, 10, 40])
})

test('far from each other, due at different times, or few: each is looked up by itself, and nothing else goes', async () => {
  const webhookId = newId(1)
  const far = copiesOf(webhookId, 200)
  const early = copiesOf(webhookId, 12, new Date(AT.getTime() - 1))
  await queue([...far, ...early])
  const ended = [...far.filter((_, n) => n % 40 === 0), ...early.slice(0, 5)]
  expect(removalOf(ended).statements).toHaveLength(1)
  expect(await remove(ended)).toBe(true)
  const left = await waiting()
  expect(left.size).toBe(212 - ended.length)
  for (const { eventId } of ended) expect(left.has(eventId)).toBe(false)
})

test('it says when a row is due at another time than it was read with, or is gone', async () => {
  const copies = copiesOf(newId(1), 30)
  await queue(copies)
  await db.database.knex('delivery_queue').where({ event_id: copies[4]!.eventId }).update({ due_at: new Date() })
  expect(await remove(copies)).toBe(false)
})

test('nothing removes nothing, and an id that is none is refused', async () => {
  expect(await remove([])).toBe(true)
  const short = { webhookId: 'short', eventId: newId(1), dueAt: AT, place: 1 }
  expect(() => removalOf([short])).toThrow(RangeError)
})

test('a run is found by the primary key', async () => {
  const copies = [1, 2, 3].flatMap((n) => copiesOf(newId(n), 400))
  await queue(copies)
  const { knex } = db.database
  await knex.raw('ANALYZE TABLE delivery_queue')
  const [{ sql, values }] = removalOf(copies.slice(420, 500)).statements as [{ sql: string; values: never[] }]
  const [[plan]] = await knex.raw(`EXPLAIN FORMAT=TRADITIONAL ${sql}`, values)
  expect(plan).toMatchObject({ type: 'range', key: 'PRIMARY' })
  expect(Number(plan.rows)).toBeLessThan(200)
})
