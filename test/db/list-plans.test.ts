/**
 * Pages of lists whose filter few rows of an account have: each is a walk of one key, in its order, however many rows there are that the
 * filter leaves out. What the server would sort, or walk over for nothing, grows with the account.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { listAuditEntries } from '../../src/audit/audit-repository.ts'
import { listBills } from '../../src/billing/bills-repository.ts'
import { listPreBookings } from '../../src/billing/staff-pre-bookings-repository.ts'
import { newId } from '../../src/ids.ts'
import { listPatients } from '../../src/patients/patients-repository.ts'
import { listBillReports } from '../../src/reports/bill-reports-repository.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { enlargeTables } from '../support/large-tables.ts'
import { StatementRecorder } from '../support/statement-recorder.ts'

const PAGE = 51
const DAY_MS = 86_400_000
const TABLES = ['patients', 'reports', 'bills', 'pre_bookings', 'audit_entries']

let db: TestDatabase
const recorder = new StatementRecorder()
const accountId = newId(0)
const keyId = newId(1)

beforeAll(async () => {
  db = await openTestDatabase()
  const { knex } = db.database
  const [tables] = await knex.raw(
    'SELECT table_name AS name FROM information_schema.tables WHERE table_schema = DATABASE()',
  )
  const names: string[] = tables.map(({ name }: { name: string }) => name)
  await enlargeTables(knex, new Set(names.filter((name) => !TABLES.includes(name))))
  // One account has a tenth of all, and as good as none of its rows are in the state that is asked for.
  for (const table of TABLES) {
    await knex.raw('UPDATE ?? SET account_id = ? ORDER BY id LIMIT 400', [table, accountId])
  }
  for (const table of ['reports', 'bills', 'pre_bookings']) {
    await knex.raw("UPDATE ?? SET status = 'completed'", [table])
    await knex.raw("UPDATE ?? SET status = 'created' WHERE account_id = ? ORDER BY id DESC LIMIT 3", [table, accountId])
  }
  await knex.raw("UPDATE reports SET status = 'draft' WHERE account_id = ? AND status = 'created'", [accountId])
  await knex.raw('UPDATE reports SET bill_id = id')
  await knex.raw("UPDATE audit_entries SET targets = '{}'")
  await knex.raw('UPDATE audit_entries SET operator_key_id = ? ORDER BY id LIMIT 3', [keyId])
  await knex.raw(`ANALYZE TABLE ${TABLES.join(', ')}`)
}, 60_000)
afterAll(async () => {
  recorder.stop()
  // They belong to nobody, which the last look at the database would find.
  for (const table of TABLES) await db.database.knex(table).delete()
  await db.close()
})

test('staff and operators find what waits for them by a key that has it in order', async () => {
  const { knex } = db.database
  await listPatients(knex, accountId, undefined, undefined, PAGE)
  await listBillReports(knex, accountId, { state: 'draft' }, PAGE)
  await listBills(knex, accountId, { status: 'created' }, PAGE)
  await listPreBookings(knex, accountId, { status: 'created' }, PAGE)
  await listAuditEntries(knex, { operatorKeyId: keyId }, undefined, PAGE)
  const from = new Date(Date.now() - 1000 * DAY_MS)
  await listAuditEntries(knex, { from, to: new Date(from.getTime() + DAY_MS) }, undefined, PAGE)
  recorder.stop()
  const found: Record<string, string> = {}
  for (const sql of recorder.statements.filter((sql) => sql.endsWith(`limit ${PAGE}`))) {
    const [plan] = await knex.raw(`EXPLAIN FORMAT=TRADITIONAL ${sql.replaceAll('?', '\\?')}`)
    const { table, key, Extra } = plan[0]
    const name = table in found ? `${table} again` : table
    found[name] = `${key}${/filesort/.test(Extra ?? '') ? ', and sorts' : ''}`
  }
  expect(found).toMatchObject({
    patients: 'patients_account',
    reports: 'reports_state',
    bills: 'bills_state',
    pre_bookings: 'pre_bookings_state',
    audit_entries: 'audit_entries_operator',
    'audit_entries again': 'PRIMARY',
  })
})
