import { randomBytes } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { purgeExpired } from '../../daemon/jobs/purge-expired.ts'
import { newId } from '../../src/ids.ts'
import { createLogger } from '../../src/logger.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { TestClock } from '../support/test-clock.ts'

const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS
const NOW_MS = Date.parse('2026-11-20T10:00:00Z')
const ACCOUNT_ID = newId(1)

let db: TestDatabase
beforeAll(async () => {
  db = await openTestDatabase()
})
afterAll(() => db.close())
beforeEach(() => knex()('purge_runs').delete())

const knex = () => db.database.knex
const ago = (ms: number) => new Date(NOW_MS - ms)
const purge = () =>
  purgeExpired({
    database: db.database,
    clock: new TestClock(new Date(NOW_MS).toISOString()),
    log: createLogger('daemon', 'silent'),
    settings: { payloadRetentionDays: 30, logRetentionDays: 90 },
    stopping: () => false,
  })()

/** Inserts both, purges, and looks at which are there. */
async function keeps(table: string, key: string, stay: Record<string, unknown>[], go: Record<string, unknown>[]) {
  await knex()(table).insert([...stay, ...go])
  await purge()
  const text = (row: Record<string, unknown>) => {
    const value = row[key]
    return Buffer.isBuffer(value) ? value.toString('hex') : String(value)
  }
  const left = await knex()(table).select(key)
  expect(left.map(text).sort()).toEqual(stay.map(text).sort())
}

test('the answer to an idempotency key goes after 24 hours', () => {
  const row = (ageMs: number) => ({
    account_id: ACCOUNT_ID,
    operation: 'createEntry',
    key_hash: randomBytes(32),
    body_hash: randomBytes(32),
    status: 200,
    answer: 'x',
    created_at: ago(ageMs),
  })
  return keeps('idempotency_keys', 'key_hash', [row(0), row(DAY_MS)], [row(DAY_MS + 2 * HOUR_MS), row(90 * DAY_MS)])
})

test('refresh tokens go when they have expired, and a family goes with its last one', async () => {
  const token = (familyId: string, expiredMs: number) => ({
    token_hash: randomBytes(32),
    family_id: familyId,
    issued_at: ago(expiredMs + 30 * DAY_MS),
    expires_at: ago(expiredMs),
  })
  const family = (ageMs: number) => ({
    id: newId(NOW_MS - ageMs),
    client_id: newId(2),
    account_id: ACCOUNT_ID,
    created_at: ago(ageMs),
  })
  const used = family(300 * DAY_MS)
  const fresh = family(DAY_MS)
  const forgotten = family(40 * DAY_MS)
  await knex()('refresh_tokens').insert([
    token(used.id, 5 * DAY_MS),
    token(used.id, -DAY_MS),
    token(fresh.id, -29 * DAY_MS),
    token(forgotten.id, 10 * DAY_MS),
  ])
  await keeps('refresh_token_families', 'id', [used, fresh], [forgotten])
  const left = await knex()('refresh_tokens').orderBy('family_id').select('family_id')
  expect(left.map((row) => row.family_id)).toEqual([used.id, fresh.id].sort())
})

test('one-time passwords stay while they count for the limit of a day, their tokens while they serve', async () => {
  const code = (ageMs: number) => ({
    id: newId(NOW_MS - ageMs),
    contact_hash: randomBytes(32),
    code_hash: randomBytes(32),
    sent_at: ago(ageMs),
    expires_at: ago(ageMs - 5 * 60_000),
  })
  await keeps('otp_codes', 'id', [code(0), code(DAY_MS)], [code(DAY_MS + 2 * HOUR_MS)])
  const token = (ageMs: number) => ({
    token_hash: randomBytes(32),
    contact_hash: randomBytes(32),
    code_id: newId(3),
    created_at: ago(ageMs),
  })
  await knex()('purge_runs').delete()
  await keeps('otp_tokens', 'token_hash', [token(0), token(5 * 60_000)], [token(2 * HOUR_MS)])
})

test('a contact is forgotten a day after its last code, unless a wrong try since its last login still counts', async () => {
  const contact = (ageMs: number, failures = 0) => ({
    contact_hash: randomBytes(32),
    account_id: ACCOUNT_ID,
    contact_sealed: 'x',
    failures_in_row: failures,
    created_at: ago(ageMs),
  })
  const young = contact(DAY_MS)
  const used = contact(400 * DAY_MS)
  const guessedAt = contact(400 * DAY_MS, 1)
  await knex()('otp_codes').insert({
    id: newId(NOW_MS),
    contact_hash: used.contact_hash,
    code_hash: randomBytes(32),
    sent_at: ago(HOUR_MS),
    expires_at: ago(HOUR_MS - 5 * 60_000),
  })
  const forgotten = Array.from({ length: 130 }, (_, n) => contact(300 * DAY_MS - n))
  await keeps('otp_contacts', 'contact_hash', [young, used, guessedAt], [contact(2 * DAY_MS), ...forgotten])
})

test('text messages go a day later, but for those that wait', () => {
  const sms = (ageMs: number, dueAt: Date | null) => ({
    id: newId(NOW_MS - ageMs),
    account_id: ACCOUNT_ID,
    created_at: ago(ageMs),
    expires_at: ago(ageMs - 5 * 60_000),
    due_at: dueAt,
  })
  return keeps('sms_messages', 'id', [sms(0, null), sms(3 * DAY_MS, ago(0))], [sms(2 * DAY_MS, null)])
})

test('guards of days that are over everywhere go, those of today and yesterday stay', () => {
  const guard = (day: string) => ({
    account_id: ACCOUNT_ID,
    day,
    kind: 'contact',
    value_hash: randomBytes(32),
    entry_id: newId(4),
  })
  const stay = ['2026-11-21', '2026-11-20', '2026-11-19', '2026-11-18'].map(guard)
  return keeps('entry_day_guards', 'value_hash', stay, ['2026-11-17', '2026-10-01'].map(guard))
})
