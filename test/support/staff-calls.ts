/**
 * A successful call of every changing operation of staff, for what must hold for each of them.
 */
import { bookingBody, buildPatient, leadBody, newContact } from './builders.ts'
import type { MakeCall, OperatorWorld } from './operator-calls.ts'

const PDF = Buffer.from('%PDF-1.4\n%%EOF\n', 'latin1')
const PDF_HEADERS = { 'content-type': 'application/pdf' }
const SLOT = { bookingType: 'Lab Visit', scheduledAt: '2026-11-22T09:00:00' }

export const STAFF_CALLS: Record<string, MakeCall> = {
  createPhlebotomist: (world) => ({ path: at(world, '/phlebotomists'), body: { name: 'Santosh Pawar' } }),
  deactivatePhlebotomist: async (world) => ({
    path: at(world, `/phlebotomists/${await makePhlebotomist(world)}/deactivate`),
  }),
  createStaffEntry: (world) => ({
    path: at(world, '/entries'),
    body: { labID: world.lab.id, first_name: 'Asha', contact: newContact(), corporateUser: world.party.id },
  }),
  mapEntryItems: async (world) => ({
    path: at(world, `/entries/${await makeLead(world, { unmappedTests: [{ name: 'x' }] })}/map-items`),
    body: { items: [{ item: 2, test: world.test.id }] },
  }),
  convertLead: async (world) => ({ path: at(world, `/entries/${await makeLead(world)}/convert`), body: SLOT }),
  assignPhlebotomist: async (world) => ({
    path: at(world, `/bookings/${await makeBooking(world)}/assign-phlebotomist`),
    body: { phlebotomistId: await makePhlebotomist(world) },
  }),
  recordArrival: async (world) => ({ path: at(world, `/bookings/${await makeAssigned(world)}/arrive`) }),
  recordSampleCollected: async (world) => ({
    path: at(world, `/bookings/${await makeAssigned(world, 'arrive')}/collect-sample`),
  }),
  recordSampleSubmitted: async (world) => ({
    path: at(world, `/bookings/${await makeAssigned(world, 'arrive', 'collect-sample')}/submit-sample`),
  }),
  rescheduleBooking: async (world) => ({
    path: at(world, `/bookings/${await makeBooking(world)}/reschedule`),
    body: { scheduledAt: SLOT.scheduledAt },
  }),
  cancelBooking: async (world) => ({ path: at(world, `/bookings/${await makeBooking(world)}/cancel`) }),
  billPreBooking: async (world) => ({ path: at(world, `/pre-bookings/${await makePreBooking(world)}/bill`) }),
  billBooking: async (world) => ({ path: at(world, `/bookings/${await makeBooking(world)}/bill`) }),
  createBill: (world) => ({
    path: at(world, '/bills'),
    body: { labID: world.lab.id, firstName: 'Farhan', tests: [{ test: world.test.id }] },
  }),
  deleteBill: async (world) => ({ path: at(world, `/bills/${await makeBill(world)}/delete`) }),
  createReport: async (world) => ({ path: at(world, `/bills/${await makeBill(world)}/reports`) }),
  uploadReport: async (world) => ({
    path: at(world, `/reports/${await makeReport(world)}/upload`),
    rawBody: PDF,
    headers: PDF_HEADERS,
  }),
  signOffReport: async (world) => ({ path: at(world, `/reports/${await makeUploaded(world)}/sign-off`) }),
  amendReport: async (world) => ({
    path: at(world, `/reports/${await makeSignedOff(world)}/amend`),
    rawBody: PDF,
    headers: PDF_HEADERS,
  }),
  sendReport: async (world) => ({ path: at(world, `/reports/${await makeSignedOff(world)}/send`) }),
  sendBill: async (world) => ({ path: at(world, `/bills/${await makeBill(world)}/send`) }),
  sendBooking: async (world) => ({ path: at(world, `/bookings/${await makeBooking(world)}/send`) }),
  sendPhlebotomist: async (world) => ({
    path: at(world, `/bookings/${await makeAssigned(world)}/send-phlebotomist`),
  }),
  sendQuotation: async (world) => ({ path: at(world, `/entries/${await makeLead(world)}/send-quotation`) }),
  liftOtpLock: async (world) => {
    const { contact } = await buildPatient(world.app, world.account)
    return { path: at(world, '/otp-lock/lift'), body: { contact } }
  },
}

function at({ account }: OperatorWorld, path: string): string {
  return `/operator/accounts/${account.id}${path}`
}

async function post(world: OperatorWorld, path: string, options: object = {}): Promise<any> {
  const { status, body } = await world.app.call('POST', at(world, path), { token: world.token, ...options })
  if (status >= 300) throw new Error(`${path}: ${JSON.stringify(body)}`)
  return body
}

/** By the account's integrator. */
async function asIntegrator({ app, account }: OperatorWorld, path: string, body: object): Promise<any> {
  const { token } = await app.accessTokens.issue(account.id)
  const answer = await app.call('POST', path, { token, body })
  if (answer.status !== 200) throw new Error(`${path}: ${JSON.stringify(answer.body)}`)
  return answer.body
}

async function makeLead(world: OperatorWorld, fields: Record<string, unknown> = {}): Promise<string> {
  const items = { tests: [{ test: world.test.id }], corporateUser: world.party.id }
  return (await asIntegrator(world, '/client/crm/lead/create', leadBody(world.lab, { ...items, ...fields }))).leadId
}

async function makeBooking(world: OperatorWorld): Promise<string> {
  const fields = { tests: [{ test: world.test.id }], corporateUser: world.party.id }
  return (await asIntegrator(world, '/client/crm/lead/create', bookingBody(world.lab, fields))).leadId
}

async function makePreBooking(world: OperatorWorld): Promise<string> {
  const path = at(world, '/lead-sources')
  await world.app.call('PUT', path, { token: world.token, body: { leadSources: ['Website'] } })
  const body = {
    labID: world.lab.id,
    patient_details: { first_name: 'Farhan', gender: 'male', age: 34, age_type: 'year' },
    integrator_id: 'PB-1',
    lead_source: 'Website',
    mapped_tests: [{ id: world.test.id }],
  }
  return (await asIntegrator(world, '/client/billing/create', body)).preBookingID
}

async function makePhlebotomist(world: OperatorWorld): Promise<string> {
  return (await post(world, '/phlebotomists', { body: { name: 'Meena Jadhav' } })).phlebotomistId
}

/** @param steps taken after that */
async function makeAssigned(world: OperatorWorld, ...steps: string[]): Promise<string> {
  const leadId = await makeBooking(world)
  const body = { phlebotomistId: await makePhlebotomist(world) }
  await post(world, `/bookings/${leadId}/assign-phlebotomist`, { body })
  for (const step of steps) await post(world, `/bookings/${leadId}/${step}`)
  return leadId
}

async function makeBill(world: OperatorWorld): Promise<string> {
  return (await post(world, `/bookings/${await makeBooking(world)}/bill`)).billId
}

async function makeReport(world: OperatorWorld): Promise<string> {
  return (await post(world, `/bills/${await makeBill(world)}/reports`)).reportId
}

async function makeUploaded(world: OperatorWorld): Promise<string> {
  const reportId = await makeReport(world)
  await post(world, `/reports/${reportId}/upload`, { rawBody: PDF, headers: PDF_HEADERS })
  return reportId
}

async function makeSignedOff(world: OperatorWorld): Promise<string> {
  const reportId = await makeUploaded(world)
  await post(world, `/reports/${reportId}/sign-off`)
  return reportId
}
