/**
 * A successful call of every changing operation of the operator API, for what must hold for each of them. Who adds an
 * operation adds its call here: in the table of its part of the API.
 */
import type { Lab } from '../../src/catalogue/labs-repository.ts'
import type { Package } from '../../src/catalogue/packages-repository.ts'
import type { Party } from '../../src/catalogue/parties-repository.ts'
import type { Test } from '../../src/catalogue/tests-repository.ts'
import { publicEventId } from '../../src/ids.ts'
import type { TestApp } from './app.ts'
import {
  autoDelete,
  buildAccount,
  buildLab,
  buildPackage,
  buildParty,
  buildPatient,
  buildTelecaller,
  buildTest,
  nextNumber,
  setPackagePrice,
  setTestPrice,
  type TestAccount,
} from './builders.ts'
import { buildEnded, buildEvent } from './logged-deliveries.ts'

export interface OperatorWorld {
  app: TestApp
  /** Of an admin key for all accounts. */
  token: string
  account: TestAccount
  lab: Lab
  test: Test
  pack: Package
  party: Party
}

/** @param token of an admin key for all accounts */
export async function buildOperatorWorld(app: TestApp, token: string): Promise<OperatorWorld> {
  const account = await buildAccount(app, { mode: 'party_scoped', sandbox: true })
  const lab = await buildLab(app, account)
  const test = await buildTest(app, lab)
  const pack = await buildPackage(app, lab, [test])
  const party = await buildParty(app, account, 'corporate')
  return { app, token, account, lab, test, pack, party }
}

export interface OperatorCall {
  /** With its ids in place. */
  path: string
  body?: unknown
  query?: Record<string, string>
  /** A file instead of JSON, with its content type in the headers. */
  rawBody?: Buffer
  headers?: Record<string, string>
}

/** Makes what the call needs, and the call. It must be answered with 200 or 201. */
export type MakeCall = (world: OperatorWorld) => Promise<OperatorCall> | OperatorCall

export const KEEPING_CALLS: Record<string, MakeCall> = {
  createOperatorKey: ({ account }) => ({
    path: '/operator/keys',
    body: { name: 'Front desk', role: 'staff', accountId: account.id },
  }),
  revokeOperatorKey: async (world) => {
    const { keyId } = await post(world, '/operator/keys', { name: 'x', role: 'admin' })
    return { path: `/operator/keys/${keyId}/revoke` }
  },
  createAccount: () => ({ path: '/operator/accounts', body: { name: 'Arogya', adminEmail: 'a@b.example' } }),
  updateAccount: (world) => ({ path: ofAccount(world), body: { name: 'Arogya Care Pvt Ltd' } }),
  issueClientSecret: async ({ app }) => ({
    path: `/operator/accounts/${(await buildAccount(app)).id}/client-secrets`,
  }),
  rotateClientSecret: (world) => ({ path: ofAccount(world, '/client-secrets/rotate') }),
  revokeClientSecret: async (world) => {
    const { id } = await buildAccount(world.app)
    const { secretId } = await post(world, `/operator/accounts/${id}/client-secrets`)
    return { path: `/operator/accounts/${id}/client-secrets/${secretId}/revoke`, body: { endSessions: true } }
  },
  createAccountWebhook: (world) => ({ path: ofAccount(world, '/webhooks'), body: webhookBody(world) }),
  deleteAccountWebhook: async (world) => ({ path: ofAccount(world, `/webhooks/${await createWebhook(world)}`) }),
  reactivateAccountWebhook: async (world) => {
    const webhookId = await createWebhook(world)
    await autoDelete(world.app, webhookId)
    return { path: ofAccount(world, `/webhooks/${webhookId}/reactivate`) }
  },
  createLab: (world) => ({ path: ofAccount(world, '/labs'), body: { name: 'Kothrud', contact: '2025461234' } }),
  updateLab: (world) => ({ path: ofLab(world), body: { name: 'Baner' } }),
  createParty: (world) => ({ path: ofAccount(world, '/parties'), body: { kind: 'doctor', name: 'Dr Rao' } }),
  updateParty: (world) => ({ path: ofAccount(world, `/parties/${world.party.id}`), body: { name: 'Deccan' } }),
  createTelecaller: (world) => ({ path: ofAccount(world, '/telecallers'), body: { name: 'Meena' } }),
  deactivateTelecaller: async (world) => ({
    path: ofAccount(world, `/telecallers/${(await buildTelecaller(world.app, world.account)).id}/deactivate`),
  }),
  activateTelecaller: async (world) => {
    const path = ofAccount(world, `/telecallers/${(await buildTelecaller(world.app, world.account)).id}`)
    await post(world, `${path}/deactivate`)
    return { path: `${path}/activate` }
  },
  setCrmSettings: (world) => ({ path: ofAccount(world, '/crm-settings'), body: { assignStrategy: 'manual' } }),
  setLeadSources: (world) => ({ path: ofAccount(world, '/lead-sources'), body: { leadSources: ['Website'] } }),
  setRateLists: (world) => ({ path: ofAccount(world, '/rate-lists'), body: { rateListTypes: ['Corporate'] } }),
  createPatient: (world) => ({
    path: ofAccount(world, '/patients'),
    body: { contact: '9812345670', name: 'Asha Kulkarni' },
  }),
  updatePatient: async (world) => ({
    path: ofAccount(world, `/patients/${(await buildPatient(world.app, world.account)).id}`),
    body: { name: 'Asha Kulkarni' },
  }),
  startErasure: async (world) => ({
    path: ofAccount(world, '/erasures'),
    body: { patientId: (await buildPatient(world.app, world.account)).id },
  }),
  createTest: (world) => ({ path: ofLab(world, '/tests'), body: { name: 'TSH', code: newCode(), cost: 1 } }),
  updateTest: (world) => ({ path: ofLab(world, `/tests/${world.test.id}`), body: { cost: 375 } }),
  removeTest: async (world) => ({ path: ofLab(world, `/tests/${(await buildTest(world.app, world.lab)).id}`) }),
  createPackage: (world) => ({
    path: ofLab(world, '/packages'),
    body: { name: 'Full Body', code: newCode(), total: 1, tests: [world.test.id] },
  }),
  updatePackage: (world) => ({ path: ofLab(world, `/packages/${world.pack.id}`), body: { tests: [world.test.id] } }),
  removePackage: async (world) => ({
    path: ofLab(world, `/packages/${(await buildPackage(world.app, world.lab, [world.test])).id}`),
  }),
  setPartyPrice: (world) => ({
    path: ofLab(world, '/party-prices'),
    body: { partyId: world.party.id, test: world.test.id, price: 299 },
  }),
  removePartyPrice: async (world) => {
    await setTestPrice(world.app, world.party, world.test, 299)
    await setPackagePrice(world.app, world.party, world.pack, 999)
    return { path: ofLab(world, '/party-prices'), query: { partyId: world.party.id, package: world.pack.id } }
  },
  setRateListPrice: async (world) => rateListPrice(world),
  removeRateListPrice: async (world) => {
    const { path, body } = await rateListPrice(world)
    await world.app.call('PUT', path, { token: world.token, body })
    return { path, query: { rateListType: rateListOf(world), test: world.test.id } }
  },
  createImport: (world) => ({ path: ofLab(world, '/imports'), body: { kind: 'tests' } }),
  addImportRows: async (world) => ({
    path: `${await beginImport(world)}/rows`,
    body: { rows: [{ line: 2, cells: { code: 'A', name: 'A', cost: '1' } }] },
  }),
  validateImport: async (world) => ({ path: `${await beginImport(world)}/validate` }),
  commitImport: async (world) => {
    const path = await beginImport(world)
    const rows = [{ line: 2, cells: { code: newCode(), name: 'A', cost: '1' } }]
    await world.app.call('PUT', `${path}/rows`, { token: world.token, body: { rows } })
    return { path: `${path}/commit`, body: { rows: 1 } }
  },
  discardImport: async (world) => ({ path: `${await beginImport(world)}/discard` }),
}

export const DELIVERY_CALLS: Record<string, MakeCall> = {
  recordMessage: (world) => ({
    path: ofAccount(world, '/messages'),
    body: {
      labID: world.lab.id,
      type: 'quotation.send',
      recipient: { contact: '9812345670', name: 'Asha' },
      corporateUser: world.party.id,
      template: 'camp',
      text: 'A camp near you',
    },
  }),
  redeliverAccountDelivery: async (world) => {
    const { app, account, lab } = world
    const webhookId = await createWebhook(world)
    const event = { accountId: account.id, labId: lab.id, atMs: app.clock.nowMs() }
    const eventId = await buildEvent(app.database, event)
    await buildEnded(app.database.knex, webhookId, eventId, 'exhausted')
    return { path: ofAccount(world, `/deliveries/${webhookId}/${publicEventId(eventId)}/redeliver`) }
  },
  startAccountRecovery: async (world) => ({
    path: ofAccount(world, '/recoveries'),
    body: { webhookId: await createWebhook(world), since: world.app.clock.now().toISOString() },
  }),
}

function ofAccount({ account }: OperatorWorld, rest = ''): string {
  return `/operator/accounts/${account.id}${rest}`
}

function ofLab({ lab }: OperatorWorld, rest = ''): string {
  return `/operator/labs/${lab.id}${rest}`
}

async function post({ app, token }: OperatorWorld, path: string, body?: unknown): Promise<any> {
  return (await app.call('POST', path, { token, body })).body
}

function newCode(): string {
  return `C${nextNumber()}`
}

function webhookBody({ lab }: OperatorWorld) {
  return { labID: lab.id, events: ['lead.created'], endpoint: 'https://lims.example.in/hooks/lab' }
}

async function createWebhook(world: OperatorWorld): Promise<string> {
  return (await post(world, ofAccount(world, '/webhooks'), webhookBody(world))).webhook.webhookId
}

async function rateListPrice(world: OperatorWorld): Promise<OperatorCall> {
  const { app, token, test } = world
  const rateListType = rateListOf(world)
  await app.call('PUT', ofAccount(world, '/rate-lists'), { token, body: { rateListTypes: [rateListType] } })
  return { path: ofLab(world, '/rate-list-prices'), body: { rateListType, test: test.id, price: 299 } }
}

/** No other account has one of that name. */
function rateListOf({ account }: OperatorWorld): string {
  return `Corporate ${account.id}`
}

async function beginImport(world: OperatorWorld): Promise<string> {
  const { importId } = await post(world, ofLab(world, '/imports'), { kind: 'tests' })
  return ofLab(world, `/imports/${importId}`)
}
