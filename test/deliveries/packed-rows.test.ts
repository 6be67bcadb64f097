import { afterAll, beforeAll, expect, test } from 'vitest'
import { COMMIT } from '../../db/batch.ts'
import {
  MOST_LITERAL_ROWS,
  MOST_ROWS,
  recordedStatements,
  removedStatements,
} from '../../src/deliveries/packed-rows.ts'
import { newId } from '../../src/ids.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'

const AT = new Date('2026-11-21T10:00:00.123Z')

let db: TestDatabase
beforeAll(async () => {
  db = await openTestDatabase()
})
afterAll(() => db.close())

test('of the copies that wait exactly those of the list are removed, however many they are', async () => {
  const { knex, batch } = db.database
  const remove = (copies: { webhookId: string; eventId: string }[]) =>
    batch.transaction((send) => send([...removedStatements(copies), COMMIT]))
  const ids = Array.from({ length: 40 }, () => newId(AT.getTime()))
  // Every webhook has a copy of every event, so that half a key finds too many.
  const all = ids.flatMap((webhookId) => ids.map((eventId) => ({ webhookId, eventId })))
  for (let from = 0; from < all.length; from += 400) {
    await knex('delivery_queue').insert(
      all.slice(from, from + 400).map(({ webhookId, eventId }) => ({ webhook_id: webhookId, event_id: eventId, due_at: AT, epoch: 1 })),
    ) // prettier-ignore
  }
  const left = new Set(all.map(({ webhookId, eventId }) => webhookId + eventId))
  for (const many of [0, 1, 7, MOST_LITERAL_ROWS - 2, MOST_LITERAL_ROWS - 1, MOST_ROWS - 2, MOST_ROWS - 1]) {
    const copies = all.filter((copy) => left.has(copy.webhookId + copy.eventId) && copy.webhookId !== ids[3]).slice(-many || 0, many ? undefined : 0) // prettier-ignore
    // Twice, and with one that is not there: nothing else goes for it.
    await remove([...copies, ...copies.slice(0, 1), { webhookId: ids[0]!, eventId: newId(AT.getTime()) }])
    for (const { webhookId, eventId } of copies) left.delete(webhookId + eventId)
    const found = await knex('delivery_queue').select('webhook_id', 'event_id')
    expect(new Set(found.map((found) => found.webhook_id + found.event_id))).toEqual(left)
  }
  expect(() => removedStatements([{ webhookId: 'short', eventId: ids[0]! }])).toThrow(RangeError)
  await knex('delivery_queue').delete()
})

test('attempts that are on disk are found by pairs, one look-up each, however many they are', async () => {
  const { knex, batch } = db.database
  const ids = Array.from({ length: 40 }, () => newId(AT.getTime()))
  const all = ids.flatMap((webhookId) => ids.map((eventId) => ({ webhookId, eventId })))
  const ended = { status: 'delivered', attempts: 3, ended_at: AT, seq: 1, started_at: AT, duration_ms: 1 }
  await knex.batchInsert('deliveries', all.map(({ webhookId, eventId }, n) => ({ ...ended, webhook_id: webhookId, event_id: eventId, class: n % 2 ? 'ok' : null })), 500) // prettier-ignore
  const attempt = { n: 2, seq: 1, started_at: AT, recorded_at: AT, duration_ms: 1, class: 'timeout' }
  await knex.batchInsert('earlier_attempts', all.map(({ webhookId, eventId }) => ({ ...attempt, webhook_id: webhookId, event_id: eventId })), 500) // prettier-ignore
  await knex.raw('ANALYZE TABLE deliveries, earlier_attempts')
  for (const many of [1, 7, MOST_LITERAL_ROWS + 1, 500]) {
    const copies = all.filter((_, n) => n % 3 === 0).slice(0, many)
    const asked = recordedStatements([...copies, { webhookId: ids[0]!, eventId: newId(AT.getTime()) }])
    const found = await batch.transaction(async (send) => (await send([...asked, COMMIT])).slice(0, -1))
    const names = found.flatMap((rows) => rows.map((row) => `${row.webhook_id} ${row.event_id} ${row.n}`)).toSorted()
    const expected = copies.flatMap(({ webhookId, eventId }) => [
      `${webhookId} ${eventId} 2`,
      ...(all.findIndex((one) => one.webhookId === webhookId && one.eventId === eventId) % 2 ? [`${webhookId} ${eventId} 3`] : []),
    ]) // prettier-ignore
    expect(names).toEqual(expected.toSorted())
    for (const { sql, values } of asked) {
      const [plan] = await knex.raw(`EXPLAIN FORMAT=TRADITIONAL ${knex.raw(sql, (values ?? []) as string[]).toQuery()}`)
      const step = plan.find(({ table }: { table: string | null }) => table === 'a' || table === 'd')
      expect([step.type.replace('eq_', ''), step.key]).toEqual(['ref', 'PRIMARY'])
    }
  }
  for (const table of ['deliveries', 'earlier_attempts']) await knex(table).delete()
})
