/**
 * Accounts, labs and what they sell, written through the repositories; and the bodies that tests send.
 */
import { autoDelete as autoDeleteAll } from '../../scripts/races/auto-delete.ts'
import { insertAccount, type Account, type AccountMode } from '../../src/accounts/accounts-repository.ts'
import { claimClient, insertClientSecret } from '../../src/accounts/clients-repository.ts'
import { insertOperatorKey } from '../../src/auth/operator-keys-repository.ts'
import { insertLab, type Lab } from '../../src/catalogue/labs-repository.ts'
import { insertPackage, updatePartyPackagePrice, type Package } from '../../src/catalogue/packages-repository.ts'
import { insertParty, type Party } from '../../src/catalogue/parties-repository.ts'
import type { PartyKind } from '../../src/catalogue/party-rules.ts'
import { insertTest, updatePartyTestPrice, type Test } from '../../src/catalogue/tests-repository.ts'
import { updateCrmSettings } from '../../src/crm/crm-settings-repository.ts'
import { DEFAULT_CRM_SETTINGS, type CrmSettings } from '../../src/crm/crm-settings-rules.ts'
import { insertTelecaller, type Telecaller } from '../../src/crm/telecallers-repository.ts'
import { hashSecret, newSecret } from '../../src/crypto.ts'
import { newId } from '../../src/ids.ts'
import { insertPatient, type Patient } from '../../src/patients/patients-repository.ts'
import { insertReport, type Report } from '../../src/patients/reports-repository.ts'
import type { TestApp } from './app.ts'

export interface TestAccount extends Account {
  clientId: string
  clientSecret: string
  /** An access token. */
  token: string
}

let counter = 0
/** A number that no other call in this file gets. */
export function nextNumber(): number {
  return ++counter
}

export async function buildAccount(
  app: TestApp,
  fields: { mode?: AccountMode; timeZone?: string; sandbox?: boolean } = {},
): Promise<TestAccount> {
  const now = app.clock.now()
  const account: Account = {
    id: newId(now.getTime()),
    name: 'Arogya Care',
    mode: fields.mode ?? 'catch_all',
    timeZone: fields.timeZone ?? 'Asia/Kolkata',
    adminEmail: 'admin@lab.example.in',
    sandbox: fields.sandbox ?? false,
    createdAt: now,
  }
  await insertAccount(app.database.knex, account)
  const clientSecret = newSecret()
  const clientId = await app.database.transaction(async (trx) => {
    const id = await claimClient(trx, account.id, newId(now.getTime()), now)
    await insertClientSecret(trx, {
      id: newId(now.getTime()),
      clientId: id,
      secretHash: hashSecret(clientSecret),
      createdAt: now,
    })
    return id
  })
  const { token } = await app.accessTokens.issue(account.id)
  return { ...account, clientId, clientSecret, token }
}

export async function buildLab(app: TestApp, account: Account, fields: Partial<Lab> = {}): Promise<Lab> {
  const now = app.clock.now()
  const lab: Lab = {
    id: newId(now.getTime()),
    accountId: account.id,
    name: `Lab ${nextNumber()}`,
    contact: '2025461234',
    adminEmail: null,
    active: true,
    createdAt: now,
    ...fields,
  }
  await insertLab(app.database.knex, lab)
  return lab
}

export async function buildParty(app: TestApp, account: Account, kind: PartyKind): Promise<Party> {
  const now = app.clock.now()
  const party: Party = {
    id: newId(now.getTime()),
    accountId: account.id,
    kind,
    name: `${kind} ${nextNumber()}`,
    createdAt: now,
  }
  await insertParty(app.database.knex, party)
  return party
}

export async function buildTelecaller(app: TestApp, account: Account): Promise<Telecaller> {
  const now = app.clock.now()
  const telecaller = {
    id: newId(now.getTime()),
    accountId: account.id,
    name: `Telecaller ${nextNumber()}`,
    active: true,
    createdAt: now,
  }
  await app.database.transaction((trx) => insertTelecaller(trx, telecaller))
  return telecaller
}

export async function setCrmSettings(app: TestApp, account: Account, settings: Partial<CrmSettings>): Promise<void> {
  await updateCrmSettings(app.database.knex, account.id, { ...DEFAULT_CRM_SETTINGS, ...settings }, app.clock.now())
}

export async function buildTest(app: TestApp, lab: Lab, fields: Partial<Test> = {}): Promise<Test> {
  const now = app.clock.now()
  const test: Test = {
    id: newId(now.getTime()),
    accountId: lab.accountId,
    labId: lab.id,
    name: `Test ${nextNumber()}`,
    code: `T${nextNumber()}`,
    cost: 350,
    serviceId: null,
    active: true,
    createdAt: now,
    ...fields,
  }
  await insertTest(app.database.knex, test)
  return test
}

export async function buildPackage(
  app: TestApp,
  lab: Lab,
  tests: Test[],
  fields: Partial<Package> = {},
): Promise<Package> {
  const now = app.clock.now()
  const pack: Package = {
    id: newId(now.getTime()),
    accountId: lab.accountId,
    labId: lab.id,
    name: `Package ${nextNumber()}`,
    code: `P${nextNumber()}`,
    total: 1899,
    active: true,
    createdAt: now,
    ...fields,
  }
  const ids = tests.map(({ id }) => id)
  await app.database.transaction((trx) => insertPackage(trx, pack, ids))
  return pack
}

export async function setTestPrice(app: TestApp, party: Party, test: Test, cost: number): Promise<void> {
  await updatePartyTestPrice(app.database.knex, party.id, test.id, cost)
}

export async function setPackagePrice(app: TestApp, party: Party, pack: Package, price: number): Promise<void> {
  await updatePartyPackagePrice(app.database.knex, party.id, pack.id, price)
}

/** @returns the key itself */
export async function buildOperatorKey(
  app: TestApp,
  fields: { role?: string; accountId?: string | null } = {},
): Promise<string> {
  const key = newSecret()
  await insertOperatorKey(app.database.knex, {
    id: newId(app.clock.nowMs()),
    keyHash: hashSecret(key),
    name: 'test',
    role: fields.role ?? 'admin',
    accountId: fields.accountId ?? null,
    createdAt: app.clock.now(),
  })
  return key
}

export async function buildPatient(app: TestApp, account: Account, fields: Partial<Patient> = {}): Promise<Patient> {
  const now = app.clock.now()
  const patient: Patient = {
    id: newId(now.getTime()),
    accountId: account.id,
    contact: newContact(),
    name: `Patient ${nextNumber()}`,
    createdAt: now,
    ...fields,
  }
  await insertPatient(app.database.knex, patient)
  return patient
}

export async function buildReport(
  app: TestApp,
  patient: Patient,
  lab: Lab,
  fields: Partial<Report> = {},
): Promise<Report> {
  const now = app.clock.now()
  const report: Report = {
    id: newId(now.getTime()),
    accountId: patient.accountId,
    labId: lab.id,
    patientId: patient.id,
    status: 'signed_off',
    reportDate: now,
    tests: ['Lipid Profile'],
    createdAt: now,
    ...fields,
  }
  await insertReport(app.database.knex, report)
  return report
}

/** Ten digits that no other call in this file gets. */
export function newContact(): string {
  return String(9_000_000_000 + nextNumber())
}

/** The smallest lead, of nobody who came in today. */
export function leadBody(lab: Lab, fields: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    branchID: lab.id,
    integratorID: `CRM-${nextNumber()}`,
    first_name: 'Asha',
    contact: newContact(),
    ...fields,
  }
}

export function bookingBody(lab: Lab, fields: Record<string, unknown> = {}): Record<string, unknown> {
  return leadBody(lab, {
    phase: 'booking',
    bookingType: 'Home Collection',
    scheduledAt: '2026-11-21T07:30:00+05:30',
    ...fields,
  })
}

export function subscribeBody(lab: Lab, fields: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    labID: lab.id,
    events: ['lead.created'],
    endpoint: 'https://lims.example.in/hooks/lab',
    protocol: 'https',
    ...fields,
  }
}

/** As the recorder writes it: the webhook went after 24 hours without a 2xx. */
export function autoDelete(app: TestApp, webhookId: string): Promise<void> {
  return autoDeleteAll(app.database.knex, app.clock.now(), [webhookId])
}
