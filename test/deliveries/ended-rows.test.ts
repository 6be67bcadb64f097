import { afterAll, beforeAll, expect, test } from 'vitest'
import { COMMIT } from '../../db/batch.ts'
import { endedStatements, type EndedRow } from '../../src/deliveries/ended-rows.ts'
import { newId } from '../../src/ids.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'

const AT = new Date('2026-11-21T10:00:00.123Z')

let db: TestDatabase
beforeAll(async () => {
  db = await openTestDatabase()
})
afterAll(() => db.close())

const write = (rows: EndedRow[], endedAt = AT) =>
  db.database.batch.transaction((send) => send([...endedStatements(rows, endedAt), COMMIT]))

function row(fields: Partial<EndedRow> = {}): EndedRow {
  return {
    webhookId: newId(AT.getTime()),
    eventId: newId(AT.getTime()),
    status: 'delivered',
    attempts: 1,
    seq: 1,
    startedAt: AT,
    durationMs: 3,
    class: 'ok',
    httpStatus: 204,
    error: null,
    answer: null,
    ...fields,
  }
}

async function read({ webhookId, eventId }: EndedRow): Promise<EndedRow & { endedAt: Date }> {
  const found = await db.database.knex('deliveries').where({ webhook_id: webhookId, event_id: eventId }).first()
  return {
    webhookId: found.webhook_id,
    eventId: found.event_id,
    status: found.status,
    attempts: found.attempts,
    seq: Number(found.seq),
    startedAt: found.started_at,
    durationMs: found.duration_ms,
    class: found.class,
    httpStatus: found.http_status,
    error: found.error,
    answer: found.answer,
    endedAt: found.ended_at,
  }
}

test('what is written is read again, each value of it, whatever stands beside it', async () => {
  const rows = [
    row(),
    row({ status: 'exhausted', attempts: 65_535, seq: 999_999_999_999, durationMs: 4_294_967_295 }),
    row({ class: 'address_refused', httpStatus: null, error: 'the address may not be called' }),
    row({ error: `it's "é", \\ and 日本 \u{1f600}`, answer: Buffer.from("' OR 1=1 --") }),
    row({ answer: Buffer.from([0]) }),
    row({ answer: Buffer.from('   ') }),
    row({ status: 'discarded', error: 'é'.repeat(200), answer: Buffer.from(Array.from({ length: 1024 }, (_, n) => n % 256)) }), // prettier-ignore
    row({ startedAt: new Date('1999-12-31T23:59:59.999Z'), httpStatus: 599 }),
  ]
  await write(rows)
  for (const expected of rows) expect(await read(expected)).toEqual({ ...expected, endedAt: AT })
})

test('a row that has ended before is overwritten whole', async () => {
  const first = row({ status: 'exhausted', attempts: 8, class: 'timeout', httpStatus: null, error: 'no answer' })
  await write([first])
  const { webhookId, eventId } = first
  const again = row({ webhookId, eventId, attempts: 9, seq: 20, answer: Buffer.from('fine') })
  const later = new Date(AT.getTime() + 1)
  await write([row(), again, row()], later)
  expect(await read(first)).toEqual({ ...again, endedAt: later })
  // Nothing of what is left out of the statement stays.
  const latest = new Date(AT.getTime() + 2)
  const plain = row({ webhookId, eventId, seq: 21 })
  await write([row(), plain, row()], latest)
  expect(await read(first)).toEqual({ ...plain, endedAt: latest })
})

test('any number of rows comes to exactly those rows', async () => {
  const { knex } = db.database
  for (const many of [1, 2, 500, 1027]) {
    await knex('deliveries').delete()
    const rows = Array.from({ length: many }, (_, n) =>
      row({ seq: n + 1, answer: n % 3 === 0 ? null : Buffer.from(`answer ${n}`) }),
    )
    await write(rows)
    const found = await knex('deliveries').orderBy('seq').select('event_id', 'answer')
    expect(found.map(({ event_id: id, answer }) => [id, String(answer)])).toEqual(
      rows.map(({ eventId, answer }) => [eventId, String(answer)]),
    )
  }
})

test('a value that its column has no room for is refused, and nothing is written', async () => {
  for (const wide of [
    { class: 'x'.repeat(65) },
    { httpStatus: 65_536 },
    { attempts: 100_000 },
    { durationMs: 2 ** 32 },
  ]) {
    const refused = row(wide)
    const beside = row()
    await expect(write([beside, refused])).rejects.toThrow()
    const ids = [refused.eventId, beside.eventId]
    expect(await db.database.knex('deliveries').whereIn('event_id', ids)).toEqual([])
  }
  expect(() => endedStatements([row(), row({ eventId: 'short' })], AT)).toThrow(RangeError)
})
