import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { DEMO_ACCOUNTS } from '../../db/seeds/demo-catalogue.ts'
import { prepareDemoData } from '../../scripts/demo-file.ts'
import { updateOperatorValues } from '../../src/billing/operator-lists-repository.ts'
import { reportFolder } from '../../src/reports/report-store.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'

let db: TestDatabase
let dataDir: string

beforeAll(async () => {
  db = await openTestDatabase()
  dataDir = mkdtempSync(join(tmpdir(), 'lis-demo-'))
})
afterAll(async () => {
  await db.close()
  rmSync(dataDir, { recursive: true })
})

test('a second start brings nothing back: no list that was changed, no patient that was erased, none of its reports', async () => {
  const { knex } = db.database
  const { id: accountId, patientId, labs } = DEMO_ACCOUNTS.catchAll
  const files = () => labs.flatMap(({ reports }) => reports.map(({ id }) => join(reportFolder(dataDir), `${id}.pdf`)))
  await prepareDemoData(db.database, dataDir)
  expect(files().length).toBeGreaterThan(0)
  expect(files().every((file) => existsSync(file))).toBe(true)

  await db.database.transaction((trx) => updateOperatorValues(trx, accountId, 'lead_source', ['Camp']))
  await db.database.transaction((trx) => updateOperatorValues(trx, accountId, 'rate_list_type', []))
  await knex('reports').where({ patient_id: patientId }).delete()
  await knex('patients').where({ id: patientId }).delete()
  for (const file of files()) rmSync(file)

  const { catchAll, partyScoped } = await prepareDemoData(db.database, dataDir)
  expect(catchAll).toMatchObject({ leadSources: ['Camp'], rateListTypes: [] })
  expect(partyScoped.leadSources.length).toBeGreaterThan(1)
  expect(await knex('patients').where({ id: patientId })).toEqual([])
  expect(await knex('reports').where({ patient_id: patientId })).toEqual([])
  expect(files().filter((file) => existsSync(file))).toEqual([])
})
