/**
 * Demo accounts for a first look and for tests of a whole installation. Never loaded in production.
 */
import type { Knex } from 'knex'
import { findAccount, insertAccount } from '../../src/accounts/accounts-repository.ts'
import { claimClient, findClient, insertClientSecret } from '../../src/accounts/clients-repository.ts'
import { findOperatorKey, insertOperatorKey } from '../../src/auth/operator-keys-repository.ts'
import { listOperatorValues, updateOperatorValues } from '../../src/billing/operator-lists-repository.ts'
import { updateRateListPrice } from '../../src/billing/rate-list-prices-repository.ts'
import { insertLab } from '../../src/catalogue/labs-repository.ts'
import { insertPackage, updatePartyPackagePrice } from '../../src/catalogue/packages-repository.ts'
import { insertParty } from '../../src/catalogue/parties-repository.ts'
import { insertTest, updatePartyTestPrice } from '../../src/catalogue/tests-repository.ts'
import { updateCrmSettings } from '../../src/crm/crm-settings-repository.ts'
import { insertTelecaller } from '../../src/crm/telecallers-repository.ts'
import { hashSecret, newSecret } from '../../src/crypto.ts'
import { newId } from '../../src/ids.ts'
import { insertPatient } from '../../src/patients/patients-repository.ts'
import { insertReport } from '../../src/patients/reports-repository.ts'
import {
  DEMO_ACCOUNTS,
  DEMO_CRM_SETTINGS,
  DEMO_LEAD_SOURCES,
  DEMO_PATIENT_CONTACT,
  DEMO_PATIENT_NAME,
  DEMO_RATE_LIST_FACTORS,
  DEMO_RATE_LIST_TYPES,
  type DemoAccountRows,
} from './demo-catalogue.ts'

/** What `demo.json` says of an account (decisions 10). */
export interface DemoAccount {
  clientID: string
  clientSecret: string
  labs: { labID: string; name: string }[]
  corporateUsers: string[]
  doctors: string[]
  hospitals: string[]
  leadSources: string[]
  rateListTypes: string[]
  patientContact: string
}

export interface DemoData {
  operatorKey: string
  catchAll: DemoAccount
  otherCatchAll: DemoAccount
  partyScoped: DemoAccount
}

/** The secrets that an earlier start handed out; only their hashes are in the database. */
export interface DemoSecrets {
  operatorKey?: string | undefined
  catchAll?: string | undefined
  otherCatchAll?: string | undefined
  partyScoped?: string | undefined
}

const OPERATOR_KEY_NAME = 'demo'
const TIME_ZONE = 'Asia/Kolkata'

/**
 * Inserts the demo accounts that are not there, and gives out secrets that work: the known ones where they still do, else
 * new ones, and the old are revoked. One transaction: a kill leaves all of it or nothing. The caller writes the secrets to
 * a file afterwards; killed in between, the next call finds them unknown and issues new ones.
 */
export async function loadDemoData(trx: Knex.Transaction, now: Date, known: DemoSecrets): Promise<DemoData> {
  return {
    operatorKey: await operatorKeyThatWorks(trx, now, known.operatorKey),
    catchAll: await accountThatWorks(trx, now, DEMO_ACCOUNTS.catchAll, known.catchAll),
    otherCatchAll: await accountThatWorks(trx, now, DEMO_ACCOUNTS.otherCatchAll, known.otherCatchAll),
    partyScoped: await accountThatWorks(trx, now, DEMO_ACCOUNTS.partyScoped, known.partyScoped),
  }
}

async function operatorKeyThatWorks(trx: Knex.Transaction, now: Date, known: string | undefined): Promise<string> {
  if (known !== undefined && (await findOperatorKey(trx, hashSecret(known)))) return known
  await trx('operator_keys').where({ name: OPERATOR_KEY_NAME }).whereNull('revoked_at').update({ revoked_at: now })
  const operatorKey = newSecret()
  await insertOperatorKey(trx, {
    id: newId(now.getTime()),
    keyHash: hashSecret(operatorKey),
    name: OPERATOR_KEY_NAME,
    role: 'admin',
    accountId: null,
    createdAt: now,
  })
  return operatorKey
}

async function accountThatWorks(
  trx: Knex.Transaction,
  now: Date,
  rows: DemoAccountRows,
  known: string | undefined,
): Promise<DemoAccount> {
  // Once: what somebody has changed since, or a patient that was erased, does not come back with the next start.
  if (!(await findAccount(trx, rows.id))) {
    await insertAll(trx, now, rows)
    await insertListsAndPatient(trx, now, rows)
  }
  const idsOf = (kind: string) => rows.parties.filter((party) => party.kind === kind).map((party) => party.id)
  return {
    clientID: rows.clientId,
    clientSecret: await clientSecretThatWorks(trx, now, rows.clientId, known),
    labs: rows.labs.map((lab) => ({ labID: lab.id, name: lab.name })),
    corporateUsers: idsOf('corporate'),
    doctors: idsOf('doctor'),
    hospitals: idsOf('hospital'),
    leadSources: await listOperatorValues(trx, rows.id, 'lead_source'),
    rateListTypes: await listOperatorValues(trx, rows.id, 'rate_list_type'),
    patientContact: DEMO_PATIENT_CONTACT,
  }
}

async function clientSecretThatWorks(
  trx: Knex.Transaction,
  now: Date,
  clientId: string,
  known: string | undefined,
): Promise<string> {
  const client = await findClient(trx, clientId)
  if (known !== undefined && client?.secretHashes.some((hash) => hash.equals(hashSecret(known)))) return known
  await trx('client_secrets')
    .where({ client_id: clientId })
    .whereNotNull('slot')
    .update({ slot: null, revoked_at: now })
  const clientSecret = newSecret()
  await insertClientSecret(trx, {
    id: newId(now.getTime()),
    clientId,
    secretHash: hashSecret(clientSecret),
    createdAt: now,
  })
  return clientSecret
}

async function insertAll(trx: Knex.Transaction, createdAt: Date, rows: DemoAccountRows): Promise<void> {
  const accountId = rows.id
  await insertAccount(trx, {
    id: accountId,
    name: rows.name,
    mode: rows.mode,
    timeZone: TIME_ZONE,
    adminEmail: 'admin@lab.example.in',
    sandbox: false,
    createdAt,
  })
  await claimClient(trx, accountId, rows.clientId, createdAt)
  for (const party of rows.parties) {
    await insertParty(trx, { id: party.id, accountId, kind: party.kind, name: party.name, createdAt })
  }
  for (const { id, name } of rows.telecallers) {
    await insertTelecaller(trx, { id, accountId, name, active: true, createdAt })
  }
  await updateCrmSettings(trx, accountId, DEMO_CRM_SETTINGS, createdAt)
  for (const lab of rows.labs) {
    const { id: labId, name, contact } = lab
    await insertLab(trx, { id: labId, accountId, name, contact, adminEmail: null, active: true, createdAt })
    for (const test of lab.tests) await insertTest(trx, { ...test, accountId, labId, createdAt })
    for (const { testIds, ...pack } of lab.packages) {
      await insertPackage(trx, { ...pack, accountId, labId, createdAt }, testIds)
    }
    for (const party of rows.parties.filter(({ priceFactor }) => priceFactor !== 1)) {
      for (const test of lab.tests) {
        await updatePartyTestPrice(trx, party.id, test.id, inPaise(test.cost * party.priceFactor))
      }
      for (const pack of lab.packages) {
        await updatePartyPackagePrice(trx, party.id, pack.id, inPaise(pack.total * party.priceFactor))
      }
    }
  }
}

async function insertListsAndPatient(trx: Knex.Transaction, createdAt: Date, rows: DemoAccountRows): Promise<void> {
  const { id: accountId, patientId } = rows
  await insertPatient(trx, {
    id: patientId,
    accountId,
    contact: DEMO_PATIENT_CONTACT,
    name: DEMO_PATIENT_NAME,
    createdAt,
  })
  await updateOperatorValues(trx, accountId, 'lead_source', DEMO_LEAD_SOURCES)
  await updateOperatorValues(trx, accountId, 'rate_list_type', DEMO_RATE_LIST_TYPES)
  for (const { id: labId, tests, packages, reports } of rows.labs) {
    const priced = [
      ...tests.map(({ id, cost }) => ({ id, price: cost })),
      ...packages.map(({ id, total }) => ({ id, price: total })),
    ]
    for (const [type, factor] of Object.entries(DEMO_RATE_LIST_FACTORS)) {
      for (const { id, price } of priced) await updateRateListPrice(trx, accountId, type, id, inPaise(price * factor))
    }
    for (const report of reports) {
      await insertReport(trx, { ...report, accountId, labId, patientId, status: 'signed_off', createdAt })
    }
  }
}

/** Rupees with at most two decimals, as the columns hold them. */
function inPaise(rupees: number): number {
  return Math.round(rupees * 100) / 100
}
