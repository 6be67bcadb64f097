/**
 * What the demo accounts are made of. Ids follow from names, so that every installation has the same ones and nothing
 * needs to be read back.
 */
import { createHash } from 'node:crypto'
import { newId } from '../../src/ids.ts'
import type { AccountMode } from '../../src/accounts/accounts-repository.ts'
import type { PartyKind } from '../../src/catalogue/party-rules.ts'
import type { CrmSettings } from '../../src/crm/crm-settings-rules.ts'

export interface DemoTest {
  id: string
  name: string
  code: string
  cost: number
  serviceId: string
}

export interface DemoPackage {
  id: string
  name: string
  code: string
  total: number
  testIds: string[]
}

export interface DemoReport {
  id: string
  reportDate: Date
  /** Names of tests of the lab. */
  tests: string[]
}

export interface DemoLab {
  id: string
  name: string
  contact: string
  tests: DemoTest[]
  packages: DemoPackage[]
  /** Of the demo patient. */
  reports: DemoReport[]
}

export interface DemoParty {
  id: string
  kind: PartyKind
  name: string
  /** Of the standard price; 1 where the account has no party prices. */
  priceFactor: number
}

export interface DemoAccountRows {
  id: string
  clientId: string
  name: string
  mode: AccountMode
  patientId: string
  labs: DemoLab[]
  parties: DemoParty[]
  telecallers: { id: string; name: string }[]
}

/** Of every demo account. */
export const DEMO_CRM_SETTINGS: CrmSettings = {
  assignStrategy: 'round_robin',
  customFields: ['campaign', 'referralCode'],
  paymentGateways: ['Online'],
}

/** For the lists that the billing operations check against. */
export const DEMO_LEAD_SOURCES = ['Website', 'Walk-in', 'Partner']
export const DEMO_RATE_LIST_TYPES = ['Standard', 'Corporate']
/** Of the standard price under each rate list; a rate list without a factor has the standard prices. */
export const DEMO_RATE_LIST_FACTORS: Record<string, number> = { Corporate: 0.9 }
export const DEMO_PATIENT_CONTACT = '9876543210'
export const DEMO_PATIENT_NAME = 'Farhan Shaikh'

const FIRST_ID_MS = Date.UTC(2026, 0, 1)
const TEXT_OF_TIME = newId(FIRST_ID_MS).slice(0, 10)
const ALPHABET = '0123456789abcdefghjkmnpqrstvwxyz'

function demoId(name: string): string {
  const bytes = createHash('sha256').update(`demo:${name}`).digest()
  return TEXT_OF_TIME + Array.from(bytes.subarray(0, 16), (byte) => ALPHABET[byte & 31]).join('')
}

const TELECALLERS = ['Meena Pawar', 'Sunil Gaikwad']

/** [code, name, cost in rupees, the lab's own service id] */
const TESTS: [string, string, number, string][] = [
  ['CBC', 'Complete Blood Count (CBC)', 350, 'SRV-1001'],
  ['HBA1C', 'HbA1c (Glycated Haemoglobin)', 480, 'SRV-1002'],
  ['KFT', 'Kidney Function Test (KFT)', 750, 'SRV-1003'],
  ['LIPID', 'Lipid Profile', 620, 'SRV-1004'],
  ['LFT', 'Liver Function Test (LFT)', 700, 'SRV-1005'],
  ['TSH', 'Thyroid Stimulating Hormone (TSH)', 300, 'SRV-1006'],
  ['VITD', 'Vitamin D (25-Hydroxy)', 1400, 'SRV-1007'],
]

/** [code, name, total in rupees, tests] */
const PACKAGES: [string, string, number, string[]][] = [
  ['DIABETES', 'Diabetes Care Package', 1499, ['HBA1C', 'LIPID', 'KFT']],
  ['FULLBODY', 'Full Body Checkup', 2999, ['CBC', 'LIPID', 'LFT', 'KFT', 'TSH', 'VITD']],
]

/** [when it was signed off, codes of its tests] */
const REPORTS: [string, string[]][] = [
  ['2026-03-14T09:05:00.000Z', ['CBC']],
  ['2026-06-14T12:31:00.000Z', ['LIPID', 'HBA1C']],
]

/** @param surcharge rupees on every test, so that the labs of an account differ */
function lab(name: string, contact: string, surcharge: number): DemoLab {
  const testId = (code: string) => demoId(`${name}:test:${code}`)
  return {
    id: demoId(`${name}:lab`),
    name,
    contact,
    tests: TESTS.map(([code, testName, cost, serviceId]) => ({
      id: testId(code),
      name: testName,
      code,
      cost: cost + surcharge,
      serviceId,
    })),
    packages: PACKAGES.map(([code, packageName, total, codes]) => ({
      id: demoId(`${name}:package:${code}`),
      name: packageName,
      code,
      total: total + surcharge * codes.length,
      testIds: codes.map(testId),
    })),
    reports: REPORTS.map(([time, codes]) => ({
      id: demoId(`${name}:report:${time}`),
      reportDate: new Date(time),
      tests: codes.map((code) => TESTS.find(([known]) => known === code)![1]),
    })),
  }
}

function party(account: string, kind: PartyKind, name: string, priceFactor = 1): DemoParty {
  return { id: demoId(`${account}:party:${name}`), kind, name, priceFactor }
}

function account(name: string, mode: AccountMode, labs: DemoLab[], parties: DemoParty[]): DemoAccountRows {
  const idOf = (what: string) => demoId(`${name}:${what}`)
  const telecallers = TELECALLERS.map((person) => ({ id: idOf(`telecaller:${person}`), name: person }))
  const ids = { id: idOf('account'), clientId: idOf('client'), patientId: idOf('patient') }
  return { ...ids, name, mode, labs, parties, telecallers }
}

export const DEMO_ACCOUNTS: Record<'catchAll' | 'otherCatchAll' | 'partyScoped', DemoAccountRows> = {
  catchAll: account(
    'Arogya Care',
    'catch_all',
    [
      lab('Sunrise Diagnostics, Koramangala', '08041234501', 0),
      lab('Sunrise Diagnostics, Indiranagar', '08041234502', 50),
    ],
    [
      party('Arogya Care', 'corporate', 'Deccan Textiles Ltd'),
      party('Arogya Care', 'corporate', 'Nandi Software Pvt Ltd'),
      party('Arogya Care', 'doctor', 'Dr Kavita Rao'),
      party('Arogya Care', 'doctor', 'Dr Imran Sheikh'),
      party('Arogya Care', 'hospital', 'Cauvery Multispeciality Hospital'),
      party('Arogya Care', 'hospital', 'Lakeside Nursing Home'),
    ],
  ),
  otherCatchAll: account(
    'CareBridge Connect',
    'catch_all',
    [lab('Nirmal Path Labs, Andheri', '02226781101', 20), lab('Nirmal Path Labs, Thane', '02226781102', 0)],
    [
      party('CareBridge Connect', 'corporate', 'Konkan Shipping Ltd'),
      party('CareBridge Connect', 'corporate', 'Sahyadri Foods Pvt Ltd'),
      party('CareBridge Connect', 'doctor', 'Dr Meera Joshi'),
      party('CareBridge Connect', 'doctor', 'Dr Suresh Patil'),
      party('CareBridge Connect', 'hospital', 'Arabian Sea Hospital'),
      party('CareBridge Connect', 'hospital', 'Thane Lifeline Hospital'),
    ],
  ),
  partyScoped: account(
    'Infotech Wellness',
    'party_scoped',
    [lab('Lotus Diagnostics, Hinjewadi', '02041567701', 0), lab('Lotus Diagnostics, Baner', '02041567702', 30)],
    [
      party('Infotech Wellness', 'corporate', 'Pune Infotech Ltd', 0.85),
      party('Infotech Wellness', 'corporate', 'Mula Motors Ltd', 0.8),
      party('Infotech Wellness', 'doctor', 'Dr Anjali Deshpande', 0.95),
      party('Infotech Wellness', 'doctor', 'Dr Rohan Kulkarni', 0.92),
      party('Infotech Wellness', 'hospital', 'Sahyog General Hospital', 0.9),
      party('Infotech Wellness', 'hospital', 'Western Ghats Heart Institute', 0.75),
    ],
  ),
}
