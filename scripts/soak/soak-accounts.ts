/**
 * The accounts of a soak: each with a lab, tests and packages, patients with a report, credentials of its own, and two webhooks
 * for everything that happens.
 */
import { hashSecret, newSecret } from '../../src/crypto.ts'
import { EVENT_TYPES } from '../../src/events/event-types.ts'
import { newId } from '../../src/ids.ts'
import { insertOperatorKey } from '../../src/auth/operator-keys-repository.ts'
import { addTenants, insertRows } from '../bench/tenants.ts'
import type { CrashArena } from '../crash/crash-arena.ts'
import type { HookedReceiver } from '../crash/hooked-receiver.ts'
import type { Ledger } from '../crash/ledger.ts'

export interface SoakPatient {
  account: SoakAccount
  contact: string
}

export interface SoakAccount {
  account: string
  lab: string
  /** Its newest access token. */
  token: string
  clientID: string
  clientSecret: string
  /** undefined: none yet, or it is not known whether it has been used. */
  refreshToken: string | undefined
  tests: string[]
  packages: string[]
}

/** What is wrong with an endpoint. */
export const FAULTS = ['hang', '500', 'reset', 'slow'] as const
export type Fault = (typeof FAULTS)[number]

/** Whether everything must arrive there all the time. */
export function isLive(fault: Fault | undefined): boolean {
  return fault === undefined || fault === 'slow'
}

export interface SoakWebhook {
  id: string
  account: SoakAccount
  fault: Fault | undefined
}

const WEBHOOKS_OF_ACCOUNT = 2
/** Facts; messages are another matter: they have one taker. */
export const EVENTS = EVENT_TYPES.filter((name) => !name.endsWith('.send'))
export const LEAD_SOURCE = 'Website'
const TESTS = 12
const PACKAGES = 3
/** Of this many webhooks one is faulty. */
const FAULTY_EACH = 20
const FIRST_CONTACT = 7_000_000_000

export interface SoakWorld {
  accounts: SoakAccount[]
  patients: SoakPatient[]
  webhooks: SoakWebhook[]
  operatorKey: string
}

export async function prepareWorld(
  arena: CrashArena,
  receiver: HookedReceiver,
  ledger: Ledger,
  counts: { accounts: number; patients: number },
): Promise<SoakWorld> {
  const tenants = await addTenants(arena, counts.accounts)
  const accounts = tenants.map(({ accountId, labId, token }): SoakAccount => ({
    account: accountId,
    lab: labId,
    token,
    clientID: newId(arena.clock.nowMs()),
    clientSecret: newSecret(),
    refreshToken: undefined,
    tests: [],
    packages: [],
  }))
  await addCredentials(arena, accounts)
  await addCatalogues(arena, accounts)
  const patients = await addPatients(arena, accounts, counts.patients)
  const webhooks: SoakWebhook[] = []
  for (const [n, account] of accounts.entries()) {
    for (let place = 0; place < WEBHOOKS_OF_ACCOUNT; place++) {
      // An account has one that is faulty at the most.
      const isFaulty = n % FAULTY_EACH === place * (FAULTY_EACH / WEBHOOKS_OF_ACCOUNT)
      const fault = isFaulty ? FAULTS[webhooks.filter((one) => one.fault).length % FAULTS.length] : undefined
      const id = await arena.addWebhook(account, receiver.urlOf, EVENTS)
      webhooks.push({ id, account, fault })
      if (isLive(fault)) ledger.append('webhooks', { webhook: id, lab: account.lab })
    }
  }
  return { accounts, patients, webhooks, operatorKey: await addOperatorKey(arena) }
}

async function addCredentials({ database, clock }: CrashArena, accounts: SoakAccount[]): Promise<void> {
  const now = clock.now()
  await insertRows(database, 'clients', ['client_id', 'account_id', 'created_at'], accounts.map(({ clientID, account }) => [clientID, account, now])) // prettier-ignore
  await insertRows(database, 'client_secrets', ['id', 'client_id', 'slot', 'secret_hash', 'created_at'], accounts.map(({ clientID, clientSecret }) => [newId(now.getTime()), clientID, 1, hashSecret(clientSecret), now])) // prettier-ignore
}

async function addCatalogues({ database, clock }: CrashArena, accounts: SoakAccount[]): Promise<void> {
  const now = clock.now()
  const ids = (count: number) => Array.from({ length: count }, () => newId(now.getTime()))
  const testRows: unknown[][] = []
  const packageRows: unknown[][] = []
  const contents: unknown[][] = []
  for (const one of accounts) {
    one.tests = ids(TESTS)
    one.packages = ids(PACKAGES)
    testRows.push(...one.tests.map((id, n) => [id, one.account, one.lab, `Serum test ${n}`, `T${n}`, 100 + n, now]))
    packageRows.push(...one.packages.map((id, n) => [id, one.account, one.lab, `Package ${n}`, `P${n}`, 900 + n, now]))
    contents.push(...one.packages.flatMap((id, n) => one.tests.slice(n, n + 4).map((test, place) => [id, test, place])))
  }
  await insertRows(database, 'tests', ['id', 'account_id', 'lab_id', 'name', 'code', 'cost', 'created_at'], testRows)
  await insertRows(database, 'packages', ['id', 'account_id', 'lab_id', 'name', 'code', 'total', 'created_at'], packageRows) // prettier-ignore
  await insertRows(database, 'package_tests', ['package_id', 'test_id', 'position'], contents)
  await insertRows(database, 'operator_lists', ['account_id', 'list', 'position', 'value'], accounts.map(({ account }) => [account, 'lead_source', 0, LEAD_SOURCE])) // prettier-ignore
}

async function addPatients(
  { database, clock }: CrashArena,
  accounts: SoakAccount[],
  count: number,
): Promise<SoakPatient[]> {
  const now = clock.now()
  const patients = Array.from({ length: count }, (_, n) => ({
    id: newId(now.getTime()),
    account: accounts[n % accounts.length]!,
    contact: String(FIRST_CONTACT + n),
  }))
  await insertRows(database, 'patients', ['id', 'account_id', 'contact', 'name', 'created_at'], patients.map(({ id, account, contact }) => [id, account.account, contact, 'Asha Kulkarni', now])) // prettier-ignore
  await insertRows(
    database,
    'reports',
    ['id', 'account_id', 'lab_id', 'patient_id', 'status', 'report_date', 'tests', 'created_at', 'updated_at'],
    patients.map(({ id, account }) => [newId(now.getTime()), account.account, account.lab, id, 'signed_off', now, '["Lipid Profile"]', now, now]), // prettier-ignore
  )
  return patients
}

/** @returns a key of the lab's own systems */
async function addOperatorKey({ database, clock }: CrashArena): Promise<string> {
  const key = newSecret()
  const createdAt = clock.now()
  await insertOperatorKey(database.knex, {
    id: newId(createdAt.getTime()),
    keyHash: hashSecret(key),
    name: 'soak',
    role: 'admin',
    accountId: null,
    createdAt,
  })
  return key
}
