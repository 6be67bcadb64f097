/**
 * What a request of an operation needs beyond its schema: ids that exist, values that nobody has used, the party that the mode
 * asks for. An operation without a hint gets its path and body from names alone, and may then meet 403, 404 and 409, too.
 */
import fc, { type Arbitrary } from 'fast-check'
import type { TestApp } from '../support/app.ts'
import { autoDelete, buildParty, buildPatient, leadBody, newContact, nextNumber } from '../support/builders.ts'
import type { Given } from '../support/contract-arbitraries.ts'
import type { ContractOperation } from '../support/contract-checker.ts'
import { buildTenant, requestOtp, subscribe, type FuzzWorld, type Tenant } from './fuzz-world.ts'

export interface Prepared {
  path?: Record<string, string>
  query?: Record<string, string>
  headers?: Record<string, string>
  given?: Given
  /** Not all that the request takes for granted is there: it may meet 400, 403, 404 and 409, too. */
  isGuess?: boolean
  /** What no field can say by itself. */
  fix?: (body: Record<string, unknown>) => Record<string, unknown>
}

export type Hint = (tenant: Tenant, app: TestApp) => Prepared | Promise<Prepared>

const fresh = <T>(make: () => T): Arbitrary<T> => fc.constant(null).map(make)
const among = (values: string[]) => fc.constantFrom(...values)
const json = fc.jsonValue({ maxDepth: 3 }).filter((value) => !JSON.stringify(value).includes('\\u'))

const ENDPOINTS = [
  'https://lims.example.in/hooks/lab', 'https://lims.example.in', 'https://LIMS.example.in:8443/a?b=c&d=%20', 'https://8.8.8.8/',
  'https://[2606:4700:4700::1111]:1024/x', 'https://b\u00fccher.example/', `https://lims.example.in/${'x'.repeat(2024)}`,
] // prettier-ignore

function partyQuery({ mode, corporates, doctors, hospitals }: Tenant): Record<string, string> {
  if (mode === 'catch_all') return {}
  const ids = [...corporates, ...doctors, ...hospitals]
  const id = ids[nextNumber() % ids.length]!
  return corporates.includes(id) ? { corporateUser: id } : { organization: id }
}

const labQuery = (tenant: Tenant) => ({ labID: tenant.labs[nextNumber() % 2]!.id })
const ofBranch: Hint = (tenant) => ({ query: { branchID: tenant.labs[0]!.id, ...partyQuery(tenant) } })

const ofWebhook =
  (parameter: 'id' | '_id', state: 'active' | 'auto_deleted'): Hint =>
  async (tenant, app) => {
    const { id, query } = await subscribe(app, tenant)
    if (state === 'auto_deleted') await autoDelete(app, id)
    return { path: { [parameter]: id }, query }
  }

/** With a test delivery that waits. */
const ofDelivery: Hint = async (tenant, app) => {
  const { id, query } = await subscribe(app, tenant)
  const { token } = tenant.account
  const { body } = await app.call('POST', `/client/events/testEvent/${id}`, { token, query })
  return { path: { webhookId: id, eventId: body.data.eventId }, query }
}

const ofRecovery =
  (isStarted: boolean): Hint =>
  async (tenant, app) => {
    const { id, query } = await subscribe(app, tenant)
    const since = new Date(app.clock.nowMs() - (nextNumber() % 13) * 86_400_000).toISOString()
    const body = { webhookId: id, since }
    if (!isStarted) return { query, given: { webhookId: fc.constant(id), since: fc.constant(since) } }
    const { token } = tenant.account
    const answer = await app.call('POST', '/client/events/recoveries', { token, query, body })
    return { path: { recoveryId: answer.body.data.recoveryId }, query }
  }

const LOG_FILTERS: Record<string, string>[] = [
  {},
  { limit: '1' },
  { limit: '100', type: 'lead.created' },
  { from: '2026-11-01T00:00:00Z', to: '2026-11-20T10:15:00.5+05:30' },
]

const subscribeHint: Hint = async (tenant, app) => {
  const given: Given = {
    labID: among(tenant.labs.map(({ id }) => id)),
    endpoint: among(ENDPOINTS),
    corporateUser: null,
    organization: null,
  }
  if (tenant.mode === 'catch_all') return { given }
  // A party of its own: an event that it has already would be 409.
  const kind = (['corporate', 'doctor', 'hospital'] as const)[nextNumber() % 3]!
  const { id } = await buildParty(app, tenant.account, kind)
  const field = kind === 'corporate' ? 'corporateUser' : 'organization'
  return { given, fix: (body) => ({ ...body, [field]: id }) }
}

const entryHint: Hint = (tenant) => ({
  given: {
    branchID: fc.constant(tenant.labs[0]!.id),
    contact: fresh(newContact),
    email: fresh(() => ` E\u00e9${nextNumber()}@example.in`),
    'tests[].test': among(tenant.tests.map(({ id }) => id)),
    'packages[].package': among(tenant.packages.map(({ id }) => id)),
    assignedTo: among(tenant.telecallers),
    corporateUser: among(tenant.corporates),
    referredOrganization: among(tenant.doctors),
    referredHospitalOrganization: among(tenant.hospitals),
    paymentMethod: among(tenant.paymentMethods),
    customFields: fc.dictionary(among(tenant.customFields), json),
  },
  fix: (body) => {
    const fields = ['corporateUser', 'referredOrganization', 'referredHospitalOrganization']
    const needsParty = tenant.mode === 'party_scoped' && !fields.some((field) => field in body)
    return needsParty ? { ...body, corporateUser: tenant.corporates[0] } : body
  },
})

/** Walked is a lead that nobody has touched. */
const walkHint: Hint = async ({ account, mode, labs, tests, corporates }, app) => {
  const party = mode === 'catch_all' ? {} : { corporateUser: corporates[0] }
  const lab = labs[0]!
  const body = leadBody(lab, { ...party, tests: [{ test: tests[0]!.id, cost: 400 }] })
  const answer = await app.call('POST', '/client/crm/lead/create', { token: account.token, body })
  return { given: { labID: fc.constant(lab.id), leadId: fc.constant(answer.body.leadId) } }
}

const preBookingHint: Hint = ({ labs, tests, packages, leadSources, doctors, hospitals, rateLists }) => ({
  given: {
    labID: fc.constant(labs[0]!.id),
    'mapped_tests[].id': among(tests.map(({ id }) => id)),
    'mapped_tests[].service_id': among(tests.flatMap(({ serviceId }) => serviceId ?? [])),
    'mapped_packages[].id': among(packages.map(({ id }) => id)),
    lead_source: among(leadSources),
    doctor: among(doctors),
    hospital: among(hospitals),
    rate_list_type: among(rateLists),
    barCode: fresh(() => `\tBC \u00e9 ${nextNumber()} `),
  },
})

export const CLIENT_HINTS: Record<string, Hint> = {
  issueToken: ({ account }) => ({
    given: { clientID: fc.constant(account.clientId), clientSecret: fc.constant(account.clientSecret) },
  }),
  refreshToken: async ({ account }, app) => {
    const credentials = { clientID: account.clientId, clientSecret: account.clientSecret }
    const { body } = await app.call('POST', '/client/auth/token', { body: credentials })
    return { given: { clientID: fc.constant(account.clientId), refreshToken: fc.constant(body.refreshToken) } }
  },
  subscribeWebhook: subscribeHint,
  listWebhooks: (tenant) => ({ query: { ...labQuery(tenant), ...partyQuery(tenant) } }),
  deleteWebhook: ofWebhook('id', 'active'),
  listDeactivatedWebhooks: (tenant) => ({
    query: { ...labQuery(tenant), ...(nextNumber() % 2 === 0 ? {} : partyQuery(tenant)) },
  }),
  reactivateWebhook: ofWebhook('_id', 'auto_deleted'),
  rotateWebhookSecret: ofWebhook('id', 'active'),
  sendTestEvent: ofWebhook('id', 'active'),
  listDeliveries: async (tenant, app) => {
    const { id, query } = await subscribe(app, tenant)
    const filters = LOG_FILTERS[nextNumber() % LOG_FILTERS.length]
    return { query: { ...query, ...filters, webhookId: id, ...(nextNumber() % 2 === 0 ? { status: 'pending' } : {}) } }
  },
  getDelivery: ofDelivery,
  // It still waits for its first attempt: 409.
  redeliver: async (tenant, app) => ({ ...(await ofDelivery(tenant, app)), isGuess: true }),
  listMissedEvents: async (tenant, app) => {
    const { id, query } = await subscribe(app, tenant)
    return { query: { ...query, webhookId: id, ...LOG_FILTERS[nextNumber() % LOG_FILTERS.length] } }
  },
  getMissedEvent: async (tenant, app) => ({ ...(await ofDelivery(tenant, app)), isGuess: true }),
  startRecovery: ofRecovery(false),
  getRecovery: ofRecovery(true),
  listLabs: () => ({}),
  listTests: ofBranch,
  listPackages: ofBranch,
  createEntry: entryHint,
  createPreBooking: preBookingHint,
  walkSandboxEntry: walkHint,
  requestLoginOtp: () => ({ given: { contact: fresh(newContact) } }),
  verifyLoginOtp: async ({ account }, app) => {
    const { contact } = await buildPatient(app, account)
    const { otp, otpToken } = await requestOtp(app, account, contact)
    return { given: { otp: fc.constant(otp), otpToken: fc.constant(otpToken) } }
  },
  listPatientReports: (tenant) => ({
    query: labQuery(tenant),
    headers: { 'patient-authorization': `Bearer ${tenant.patientToken}` },
  }),
}

/** By the names of the parameters and fields of the operator's contract. */
export function operatorGuess(tenant: Tenant): Prepared & { given: Given } {
  const lab = tenant.labs[0]!
  return {
    path: {
      accountId: tenant.account.id,
      labID: lab.id,
      telecallerId: tenant.telecallers[0]!,
    },
    given: {
      '*.labID': fc.constant(lab.id),
      '*.branchID': fc.constant(lab.id),
      '*.partyId': among(tenant.corporates),
      '*.test': among(tenant.tests.map(({ id }) => id)),
      '*.package': among(tenant.packages.map(({ id }) => id)),
      '*.rateListType': among(tenant.rateLists),
      '*.corporateUser': among(tenant.corporates),
      '*.organization': among(tenant.doctors),
      '*.referredOrganization': among(tenant.doctors),
      '*.referredHospitalOrganization': among(tenant.hospitals),
      '*.assignedTo': among(tenant.telecallers),
      '*.code': fresh(() => `C${nextNumber()}`),
      '*.serviceID': fresh(() => `S${nextNumber()}`),
      '*.timeZone': among(['Asia/Kolkata', 'America/New_York', 'UTC']),
      '*.adminEmail': fresh(() => `admin${nextNumber()}@lab.example.in`),
    },
  }
}

/** For what changes or takes away what others use. */
const ofItsOwn: Hint = async (_, app) => operatorGuess(await buildTenant(app, 'catch_all'))

const likeItsName: Hint = (tenant) => operatorGuess(tenant)

export const OPERATOR_HINTS: Record<string, Hint> = {
  listAccounts: likeItsName,
  createAccount: likeItsName,
  updateAccount: ofItsOwn,
  rotateClientSecret: ofItsOwn,
  updateLab: ofItsOwn,
  createLab: likeItsName,
  createParty: likeItsName,
  listTelecallers: likeItsName,
  createTelecaller: likeItsName,
  deactivateTelecaller: ofItsOwn,
  getCrmSettings: likeItsName,
  setCrmSettings: ofItsOwn,
  listStaffNotifications: likeItsName,
  createTest: likeItsName,
  createPackage: (tenant) => {
    const guess = operatorGuess(tenant)
    return { ...guess, given: { ...guess.given, 'tests[]': among(tenant.tests.map(({ id }) => id)) } }
  },
  setPartyPrice: likeItsName,
  setLeadSources: ofItsOwn,
  setRateLists: ofItsOwn,
  setRateListPrice: likeItsName,
}

/** Of operations that nobody has described here: what their names say. */
function clientGuess(tenant: Tenant): Prepared {
  return { query: { ...labQuery(tenant), ...partyQuery(tenant) }, isGuess: true }
}

export async function prepare(operation: ContractOperation, tenant: Tenant, world: FuzzWorld): Promise<Prepared> {
  const { operationId, path } = operation
  const hint = CLIENT_HINTS[operationId] ?? OPERATOR_HINTS[operationId]
  if (hint) return hint(tenant, world.app)
  return path.startsWith('/client/') ? clientGuess(tenant) : { ...operatorGuess(tenant), isGuess: true }
}
