import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { DEMO_ACCOUNTS } from '../../db/seeds/demo-catalogue.ts'
import { findClient } from '../../src/accounts/clients-repository.ts'
import { listOperatorValues, updateOperatorValues } from '../../src/billing/operator-lists-repository.ts'
import { findOperatorKey } from '../../src/auth/operator-keys-repository.ts'
import { listActiveLabs } from '../../src/catalogue/labs-repository.ts'
import { listPackages } from '../../src/catalogue/packages-repository.ts'
import { findParty } from '../../src/catalogue/parties-repository.ts'
import { listTests } from '../../src/catalogue/tests-repository.ts'
import { getCrmSettings } from '../../src/crm/crm-settings-repository.ts'
import { listTelecallers } from '../../src/crm/telecallers-repository.ts'
import { hashSecret } from '../../src/crypto.ts'
import { reportFolder } from '../../src/reports/report-store.ts'
import { listReportsOfContact } from '../../src/patients/reports-repository.ts'
import { prepareDemoData, writeDemoFile } from '../../scripts/demo-file.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'

let db: TestDatabase
const dataDir = mkdtempSync(join(tmpdir(), 'lis-demo-'))
const ACCOUNTS = ['catchAll', 'otherCatchAll', 'partyScoped'] as const

beforeAll(async () => {
  db = await openTestDatabase()
})

afterAll(async () => {
  await db.close()
  rmSync(dataDir, { recursive: true, force: true })
})

/** As a start of `make run` does. */
async function start(baseUrl = 'http://127.0.0.1:8080') {
  const file = writeDemoFile(dataDir, { baseUrl }, await prepareDemoData(db.database, dataDir))
  return JSON.parse(readFileSync(file, 'utf8'))
}

async function countRows(): Promise<Record<string, number>> {
  const counts: Record<string, number> = {}
  for (const table of [
    'accounts',
    'labs',
    'parties',
    'tests',
    'packages',
    'party_test_prices',
    'client_secrets',
    'reports',
  ]) {
    const [row] = await db.database.knex(table).count({ count: '*' })
    counts[table] = Number(row!.count)
  }
  return counts
}

async function secretsServe(demo: Record<string, any>): Promise<boolean[]> {
  const { knex } = db.database
  const serves = await Promise.all(
    ACCOUNTS.map(async (name) => {
      const client = await findClient(knex, demo[name].clientID)
      return client?.secretHashes.some((hash) => hash.equals(hashSecret(demo[name].clientSecret))) ?? false
    }),
  )
  return [...serves, (await findOperatorKey(knex, hashSecret(demo.operatorKey))) !== undefined]
}

test('two first starts at once load the demo data once', async () => {
  await Promise.all([1, 2].map(() => prepareDemoData(db.database, dataDir)))
  expect((await countRows()).accounts).toBe(3)
})

test('each account has labs with tests and packages, and parties of every kind', async () => {
  const demo = await start()
  const { knex } = db.database
  for (const name of ACCOUNTS) {
    const account = demo[name]
    const { accountId } = (await findClient(knex, account.clientID))!
    expect((await listActiveLabs(knex, accountId)).map((lab) => lab.id).toSorted()).toEqual(
      account.labs.map((lab: { labID: string }) => lab.labID).toSorted(),
    )
    expect(account.labs.length).toBeGreaterThanOrEqual(2)
    for (const { labID } of account.labs) {
      const tests = await listTests(knex, accountId, labID, undefined)
      expect(tests.length).toBeGreaterThanOrEqual(5)
      expect(tests.every((test) => test.serviceId !== null)).toBe(true)
      const packages = await listPackages(knex, accountId, labID, undefined)
      expect(packages.length).toBeGreaterThanOrEqual(2)
      expect(packages.every((pack) => pack.tests.length > 0)).toBe(true)
    }
    for (const [field, kind] of [
      ['corporateUsers', 'corporate'],
      ['doctors', 'doctor'],
      ['hospitals', 'hospital'],
    ] as const) {
      expect(account[field].length).toBeGreaterThanOrEqual(2)
      for (const id of account[field]) expect((await findParty(knex, accountId, id))?.kind).toBe(kind)
    }
    expect(account.patientContact).toMatch(/^\d{10}$/)
  }
})

test('each account has two telecallers, custom fields and a payment gateway', async () => {
  const demo = await start()
  const { knex } = db.database
  for (const name of ACCOUNTS) {
    const { accountId } = (await findClient(knex, demo[name].clientID))!
    expect((await listTelecallers(knex, accountId, undefined, 10)).map(({ active }) => active)).toEqual([true, true])
    expect(await getCrmSettings(knex, accountId)).toEqual({
      assignStrategy: 'round_robin',
      customFields: ['campaign', 'referralCode'],
      paymentGateways: ['Online'],
    })
  }
})

test('on the party-scoped account every party has prices of its own', async () => {
  const { partyScoped } = await start()
  const { knex } = db.database
  const { accountId } = (await findClient(knex, partyScoped.clientID))!
  const labId = partyScoped.labs[0].labID
  const parties = [...partyScoped.corporateUsers, ...partyScoped.doctors, ...partyScoped.hospitals]
  const costs = await Promise.all(
    [undefined, ...parties].map(async (party) => (await listTests(knex, accountId, labId, party))[0]!.cost),
  )
  const totals = await Promise.all(
    [undefined, ...parties].map(async (party) => (await listPackages(knex, accountId, labId, party))[0]!.total),
  )
  expect(new Set(costs).size).toBe(parties.length + 1)
  expect(new Set(totals).size).toBe(parties.length + 1)
})

test('each account has the lists that demo.json shows, and a patient whose reports have files', async () => {
  const demo = await start()
  const { knex } = db.database
  for (const name of ACCOUNTS) {
    const account = demo[name]
    const { accountId } = (await findClient(knex, account.clientID))!
    expect(await listOperatorValues(knex, accountId, 'lead_source')).toEqual(account.leadSources)
    expect(await listOperatorValues(knex, accountId, 'rate_list_type')).toEqual(account.rateListTypes)
    for (const { labID } of account.labs) {
      const reports = await listReportsOfContact(knex, accountId, labID, account.patientContact)
      expect(reports.length).toBeGreaterThanOrEqual(2)
      for (const { id } of reports) {
        const pdf = readFileSync(join(reportFolder(dataDir), `${id}.pdf`), 'latin1')
        expect(pdf).toMatch(/^%PDF-1\.4\n[^]*%%EOF\n$/)
        // What readers begin with: the table of objects is where the end says, and each object where the table says.
        const table = Number(/startxref\n(\d+)/.exec(pdf)![1])
        expect(pdf.slice(table, table + 5)).toBe('xref\n')
        const offsets = [...pdf.slice(table).matchAll(/^(\d{10}) 00000 n /gm)].map(([, offset]) => Number(offset))
        offsets.forEach((offset, index) => expect(pdf.slice(offset)).toMatch(new RegExp(`^${index + 1} 0 obj\n`)))
      }
    }
  }
  expect(Number((await knex('rate_list_prices').count({ n: '*' }).first())!.n)).toBeGreaterThan(0)
})

test('a later start keeps rows and secrets, and says the address of today', async () => {
  const first = await start()
  const rows = await countRows()
  const second = await start('http://127.0.0.1:9999')
  expect(second).toEqual({ ...first, baseUrl: 'http://127.0.0.1:9999' })
  expect(await countRows()).toEqual(rows)
})

test('when demo.json is lost, new secrets are issued and the lost ones no longer serve', async () => {
  const lost = await start()
  rmSync(join(dataDir, 'demo.json'))
  const found = await start()
  expect(await secretsServe(found)).toEqual([true, true, true, true])
  expect(await secretsServe(lost)).toEqual([false, false, false, false])
  expect({ ...found, operatorKey: '', catchAll: '', otherCatchAll: '', partyScoped: '' }).toEqual({
    ...lost,
    operatorKey: '',
    catchAll: '',
    otherCatchAll: '',
    partyScoped: '',
  })
})

test('of a demo.json in which one secret is broken only that one is replaced', async () => {
  const first = await start()
  const broken = { ...first, partyScoped: { ...first.partyScoped, clientSecret: 'x' } }
  writeFileSync(join(dataDir, 'demo.json'), JSON.stringify(broken))
  const second = await start()
  expect(await secretsServe(second)).toEqual([true, true, true, true])
  expect(second.catchAll).toEqual(first.catchAll)
  expect(second.partyScoped.clientSecret).not.toBe('x')
})

test("the file is its owner's alone", async () => {
  await start()
  expect(statSync(join(dataDir, 'demo.json')).mode & 0o077).toBe(0)
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
