/**
 * Every field of the operator's contract that names a record of an account, and for each operation a call that is taken, with the
 * ids of a world. Made from the contract: a new field is in it, or fails the test until it is named here.
 */
import { publicEventId } from '../../src/ids.ts'
import { operator } from '../support/app.ts'
import {
  buildParty,
  buildPatient,
  buildTelecaller,
  leadBody,
  setPackagePrice,
  setTestPrice,
  subscribeBody,
} from '../support/builders.ts'
import type { ContractOperation } from '../support/contract-checker.ts'
import { buildEvent } from '../support/logged-deliveries.ts'
import {
  DELIVERY_CALLS,
  KEEPING_CALLS,
  type MakeCall,
  type OperatorCall,
  type OperatorWorld,
} from '../support/operator-calls.ts'
import { STAFF_CALLS } from '../support/staff-calls.ts'
import { textFieldsOf, type TextField } from './tenancy-table.ts'

const CHANGING: Record<string, MakeCall> = { ...KEEPING_CALLS, ...STAFF_CALLS, ...DELIVERY_CALLS }

/** They name no account: what a key that is bound to one finds there is told one by one. */
export const WITHOUT_ACCOUNT = ['createAccount', 'createOperatorKey', 'listAccounts', 'listAuditEntries', 'listFailingWebhooks', 'listOperatorKeys', 'revokeOperatorKey'] // prettier-ignore

/** Texts of somebody's own, filters and pages. */
const NO_IDS = new Set([
  'X-Request-Id', 'Idempotency-Key', 'limit', 'cursor', 'name', 'mode', 'active', 'kind', 'code', 'type', 'from', 'to', 'since', 'status', 'state',
  'phase', 'unmapped', 'day', 'partyless', 'failing', 'timeZone', 'adminEmail', 'email', 'serviceID', 'endpoint',
  'recipient.contact', 'recipient.name', 'template', 'text', 'attachmentUrl', 'integratorID', 'title', 'first_name', 'last_name',
  'firstName', 'lastName', 'country_code', 'address', 'pincode', 'location', 'petOwnerName', 'breed', 'animalCategory', 'notes',
  'source', 'scheduledAt', 'paymentMethod', 'unmappedTests[].name', 'unmappedPackages[].name', 'customFields[]',
  'paymentGateways[]', 'leadSources[]', 'rateListTypes[]',
]) // prettier-ignore

/** A number that patients of several accounts may have: it is taken, and means those of the account alone. */
export const PERSONS = new Set(['contact'])
/** Where a contact is looked for, and not written down. */
const ABOUT_PERSONS = new Set(['listPatients', 'startErasure', 'getOtpLock', 'liftOtpLock'])

/** What the lab calls something: no id, and not compared as one. */
export const NAMES = new Set(['rateListType'])

/** Records of a world for the fields that the call of an operation leaves out, and for the paths of reading ones. */
const RECORDS: Record<string, (world: OperatorWorld) => Promise<string> | string> = {
  accountId: ({ account }) => account.id,
  labID: ({ lab }) => lab.id,
  test: ({ test }) => test.id,
  package: ({ pack }) => pack.id,
  testId: ({ test }) => test.id,
  packageId: ({ pack }) => pack.id,
  partyId: ({ party }) => party.id,
  corporateUser: ({ party }) => party.id,
  referredOrganization: async ({ app, account }) => (await buildParty(app, account, 'doctor')).id,
  referredHospitalOrganization: async ({ app, account }) => (await buildParty(app, account, 'hospital')).id,
  assignedTo: async ({ app, account }) => (await buildTelecaller(app, account)).id,
  telecallerId: idIn('deactivateTelecaller'),
  secretId: idIn('revokeClientSecret'),
  patientId: async ({ app, account }) => (await buildPatient(app, account)).id,
  contact: async ({ app, account }) => (await buildPatient(app, account)).contact,
  webhookId: idIn('deleteAccountWebhook'),
  eventId: idIn('redeliverAccountDelivery', 'eventId'),
  recoveryId: async (world) => (await make(world, 'startAccountRecovery')).recoveryId,
  erasureId: async (world) => (await make(world, 'startErasure')).erasureId,
  importId: idIn('validateImport', 'importId'),
  phlebotomistId: idIn('deactivatePhlebotomist'),
  leadId: idIn('convertLead'),
  preBookingID: idIn('billPreBooking'),
  billId: idIn('deleteBill'),
  reportId: idIn('signOffReport'),
  rateListType: async (world) => (await make(world, 'setRateListPrice')).rateListType,
}

/** Of fields that stand in the place of another one, and of filters: they must find something. By operation, or by it and the field. */
const ESPECIALLY: Record<string, MakeCall> = {
  'setPartyPrice package': (world) => itemPrice(world, { package: world.pack.id, price: 1 }),
  'removePartyPrice test': async (world) => {
    await setTestPrice(world.app, world.party, world.test, 299)
    return { path: ofLab(world, '/party-prices'), query: { partyId: world.party.id, test: world.test.id } }
  },
  'setRateListPrice package': async (world) => {
    const call = await CHANGING.setRateListPrice!(world)
    return { ...call, body: { rateListType: rateListOf(call), package: world.pack.id, price: 1 } }
  },
  'removeRateListPrice package': async (world) => {
    const call = await CHANGING.setRateListPrice!(world)
    const body = { rateListType: rateListOf(call), package: world.pack.id, price: 1 }
    await send(world, 'PUT', { ...call, body })
    return { path: call.path, query: { rateListType: body.rateListType, package: world.pack.id } }
  },
  'mapEntryItems items[].package': async (world) => {
    const items = { unmappedPackages: [{ name: 'x', price: 1 }], corporateUser: world.party.id }
    const entry = await asIntegrator(world, '/client/crm/lead/create', leadBody(world.lab, items))
    return {
      path: ofAccount(world, `/entries/${entry.leadId}/map-items`),
      body: { items: [{ item: 1, package: world.pack.id }] },
    }
  },
  'recordMessage leadId': async (world) => {
    const call = await CHANGING.recordMessage!(world)
    const { corporateUser: _, ...body } = call.body as Record<string, unknown>
    return { ...call, body: { ...body, leadId: await RECORDS.leadId!(world) } }
  },
  'startErasure contact': async (world) => ({
    path: ofAccount(world, '/erasures'),
    body: { contact: await RECORDS.contact!(world) },
  }),
  getOtpLock: async (world) => ({
    path: ofAccount(world, '/otp-lock'),
    query: { contact: await RECORDS.contact!(world) },
  }),
  listPartyPrices: async (world) => {
    await setPackagePrice(world.app, world.party, world.pack, 999)
    return { path: ofLab(world, '/party-prices'), query: { partyId: world.party.id } }
  },
  listRateListPrices: async (world) => {
    const call = await CHANGING.setRateListPrice!(world)
    await send(world, 'PUT', call)
    return { path: call.path, query: { rateListType: rateListOf(call) } }
  },
  'listAccountWebhooks labID': async (world) => {
    await make(world, 'createAccountWebhook')
    return { path: ofAccount(world, '/webhooks'), query: { labID: world.lab.id } }
  },
  'listAccountWebhooks partyId': async (world) => {
    const party = await buildParty(world.app, world.account, 'corporate')
    await asIntegrator(world, '/client/events/subscribe', subscribeBody(world.lab, { corporateUser: party.id }))
    return { path: ofAccount(world, '/webhooks'), query: { partyId: party.id } }
  },
  listAccountDeliveries: async (world) => {
    await buildDelivery(world)
    return { path: ofAccount(world, '/deliveries'), query: { labID: world.lab.id } }
  },
  'listAccountDeliveries webhookId': async (world) => {
    const { webhookId } = await buildDelivery(world)
    return { path: ofAccount(world, '/deliveries'), query: { webhookId } }
  },
  getAccountDelivery: async (world) => {
    const { webhookId, eventId } = await buildDelivery(world)
    return { path: ofAccount(world, `/deliveries/${webhookId}/${eventId}`) }
  },
  listAccountMissedEvents: async (world) => {
    const { webhookId } = await buildMissed(world)
    return { path: ofAccount(world, '/missed-events'), query: { webhookId } }
  },
  getAccountMissedEvent: async (world) => {
    const { webhookId, eventId } = await buildMissed(world)
    return { path: ofAccount(world, `/missed-events/${webhookId}/${eventId}`) }
  },
  'listEntries labID': async (world) => {
    await RECORDS.leadId!(world)
    return { path: ofAccount(world, '/entries'), query: { labID: world.lab.id } }
  },
  'listBookings labID': async (world) => {
    await idIn('cancelBooking')(world)
    return { path: ofAccount(world, '/bookings'), query: { labID: world.lab.id } }
  },
  'listBookings phlebotomistId': async (world) => {
    const call = await CHANGING.assignPhlebotomist!(world)
    await send(world, 'POST', call)
    return { path: ofAccount(world, '/bookings'), query: call.body as { phlebotomistId: string } }
  },
  'listPreBookings labID': async (world) => {
    await RECORDS.preBookingID!(world)
    return { path: ofAccount(world, '/pre-bookings'), query: { labID: world.lab.id } }
  },
  'listBills labID': async (world) => bills(world, { labID: (await make(world, 'billBooking')).labID }),
  'listBills leadId': async (world) => bills(world, { leadId: (await make(world, 'billBooking')).leadId }),
  'listBills preBookingID': async (world) =>
    bills(world, { preBookingID: (await make(world, 'billPreBooking')).preBookingID }),
  'listReports labID': async (world) => {
    await RECORDS.reportId!(world)
    return { path: ofAccount(world, '/reports'), query: { labID: world.lab.id } }
  },
  'listReports billId': async (world) => ({
    path: ofAccount(world, '/reports'),
    query: { billId: (await make(world, 'createReport')).billId },
  }),
}

export const operations = new Map(operator.operations.map((operation) => [operation.operationId, operation]))

/** @throws for a text field that is neither an id nor known to be none, and for an id that has no record here */
export function operatorFields(): TextField[] {
  return textFieldsOf(operator).filter(({ operation, place, path }) => {
    const { operationId } = operation
    if (WITHOUT_ACCOUNT.includes(operationId) || NO_IDS.has(path)) return false
    if (PERSONS.has(path) && !ABOUT_PERSONS.has(operationId)) return false
    if (RECORDS[nameOf(path)]) return true
    throw new Error(`${operationId}: is ${place} ${path} an id? Name it in operator-table.ts`)
  })
}

/** A call that is taken, with the field in it. @throws where nobody has said what the field needs */
export async function callOf(field: TextField, world: OperatorWorld): Promise<OperatorCall> {
  const { operation, place, path } = field
  const { operationId } = operation
  const especially = ESPECIALLY[`${operationId} ${path}`] ?? ESPECIALLY[operationId]
  const call = await (especially ?? CHANGING[operationId] ?? ((own) => readingCall(operation, own)))(world)
  if (place === 'path' || valueIn(field, call) !== undefined) return call
  return withValue(field, call, await RECORDS[nameOf(path)]!(world))
}

/** With a record of the world for each id of its path and each parameter that it can't do without. */
async function readingCall(operation: ContractOperation, world: OperatorWorld): Promise<OperatorCall> {
  if (operation.method !== 'GET') throw new Error(`${operation.operationId} has no call in the tables of the tests`)
  let { path } = operation
  for (const [template, name] of path.matchAll(/\{(\w+)\}/g)) {
    const record = RECORDS[name!]
    if (!record) throw new Error(`${operation.operationId}: no record for ${name}`)
    // An import lies in a lab: both are the world's own.
    path = path.replace(template, await record(world))
  }
  return { path }
}

export function valueIn({ operation, place, path }: TextField, call: OperatorCall): string | undefined {
  if (place === 'path') return idsOf(operation, call.path)[path]
  if (place === 'query') return call.query?.[path]
  const [list, field] = path.split(/\[\]\.?/)
  const value = (call.body as Record<string, any> | undefined)?.[list!]
  if (!path.includes('[]')) return value
  return field ? value?.[0]?.[field] : value?.[0]
}

export function withValue(field: TextField, call: OperatorCall, value: unknown): OperatorCall {
  const { operation, place, path } = field
  if (place === 'path') return { ...call, path: pathWith(operation, call.path, { [path]: String(value) }) }
  if (place === 'query') return { ...call, query: { ...call.query, [path]: String(value) } }
  const body = { ...(call.body as Record<string, any> | undefined) }
  const [list, name] = path.split(/\[\]\.?/) as [string, string | undefined]
  if (!path.includes('[]')) body[list] = value
  else body[list] = [name ? { ...body[list]?.[0], [name]: value } : value]
  return { ...call, body }
}

export function pathWith(operation: ContractOperation, path: string, values: Record<string, string>): string {
  const ids = { ...idsOf(operation, path), ...values }
  return operation.path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(ids[name]!))
}

/** The ids in a path, by their names. */
export function idsOf(operation: ContractOperation, path: string): Record<string, string> {
  const names = [...operation.path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name!)
  const values = new RegExp(`^${operation.path.replace(/\{\w+\}/g, '([^/]+)')}$`).exec(path)
  if (!values) throw new Error(`${path} is no path of ${operation.operationId}`)
  return Object.fromEntries(names.map((name, index) => [name, decodeURIComponent(values[index + 1]!)]))
}

/** `tests[].test` and `test` name the same kind of record; `leadIds[]` several of `leadId`. */
function nameOf(path: string): string {
  const last = path.split('.').at(-1)!
  return last === 'tests[]' ? 'test' : last.replace(/Ids\[\]$/, 'Id').replace(/^preBookingId$/, 'preBookingID')
}

/** The last id in the path of the operation's call, or the one of that name. */
function idIn(operationId: string, name?: string) {
  return async (world: OperatorWorld): Promise<string> => {
    const ids = idsOf(operations.get(operationId)!, (await CHANGING[operationId]!(world)).path)
    return name === undefined ? Object.values(ids).at(-1)! : ids[name]!
  }
}

async function make(world: OperatorWorld, operationId: string): Promise<any> {
  return send(world, operations.get(operationId)!.method, await CHANGING[operationId]!(world))
}

async function send({ app, token }: OperatorWorld, method: string, { path, ...call }: OperatorCall): Promise<any> {
  const { status, body } = await app.call(method, path, { token, ...call })
  if (status >= 300) throw new Error(`${path}: ${JSON.stringify(body)}`)
  return body
}

async function asIntegrator({ app, account }: OperatorWorld, path: string, body: object): Promise<any> {
  const { token } = await app.accessTokens.issue(account.id)
  const answer = await app.call('POST', path, { token, body })
  if (answer.status !== 200) throw new Error(`${path}: ${JSON.stringify(answer.body)}`)
  return answer.body
}

async function buildDelivery(world: OperatorWorld): Promise<{ webhookId: string; eventId: string }> {
  const { path } = await CHANGING.redeliverAccountDelivery!(world)
  return idsOf(operations.get('redeliverAccountDelivery')!, path) as { webhookId: string; eventId: string }
}

/** An event of a time in which its webhook was auto-deleted. */
async function buildMissed(world: OperatorWorld): Promise<{ webhookId: string; eventId: string }> {
  const { app, account, lab } = world
  const { path } = await CHANGING.reactivateAccountWebhook!(world)
  const { webhookId } = idsOf(operations.get('reactivateAccountWebhook')!, path)
  const eventId = await buildEvent(app.database, { accountId: account.id, labId: lab.id, atMs: app.clock.nowMs() })
  return { webhookId: webhookId!, eventId: publicEventId(eventId) }
}

const itemPrice = (world: OperatorWorld, item: object): OperatorCall => ({
  path: ofLab(world, '/party-prices'),
  body: { partyId: world.party.id, ...item },
})
const bills = (world: OperatorWorld, query: Record<string, string>) => ({ path: ofAccount(world, '/bills'), query })
const rateListOf = ({ body }: OperatorCall) => (body as { rateListType: string }).rateListType
const ofAccount = ({ account }: OperatorWorld, rest: string) => `/operator/accounts/${account.id}${rest}`
const ofLab = ({ lab }: OperatorWorld, rest: string) => `/operator/labs/${lab.id}${rest}`
