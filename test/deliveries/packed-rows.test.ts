import { afterAll, beforeAll, expect, test } from 'vitest'
import { COMMIT } from '../../db/batch.ts'
import { MOST_LITERAL_ROWS, MOST_ROWS, removedStatements } from '../../src/deliveries/packed-rows.ts'
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
