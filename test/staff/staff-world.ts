/**
 * An account with a lab and what staff need for their work, and the calls that they make.
 */
import type { Lab } from '../../src/catalogue/labs-repository.ts'
import type { Test } from '../../src/catalogue/tests-repository.ts'
import type { Account } from '../../src/accounts/accounts-repository.ts'
import type { TestApp } from '../support/app.ts'
import { bookingBody, buildAccount, buildLab, buildOperatorKey, buildTest, leadBody } from '../support/builders.ts'

export const PDF = Buffer.from('%PDF-1.4\n1 0 obj\n<< >>\nendobj\ntrailer\n<< >>\n%%EOF\n', 'latin1')

export type Answer = Awaited<ReturnType<TestApp['call']>>

export interface StaffWorld {
  app: TestApp
  account: Account
  lab: Lab
  /** A key with the role `staff`, bound to the account. */
  staffKey: string
  adminKey: string
  test: Test
  phlebotomistId: string
  otherPhlebotomistId: string
  /** POST on a path below the account, with the staff key. */
  post(path: string, body?: unknown, token?: string): Promise<Answer>
  get(path: string, query?: Record<string, string>, token?: string): Promise<Answer>
  putPdf(path: string, pdf?: Buffer): Promise<Answer>
  /** By an integrator's call. */
  createEntry(fields?: Record<string, unknown>): Promise<string>
  createBooking(fields?: Record<string, unknown>): Promise<string>
  preBook(fields?: Record<string, unknown>): Promise<string>
  /** Types of all events of the account, in no order. */
  eventTypes(): Promise<string[]>
  /** Bodies of events about a record, by their version. */
  eventsOf(subjectId: string): Promise<any[]>
}

export async function openStaffWorld(app: TestApp, given?: { account: Account; lab: Lab }): Promise<StaffWorld> {
  const account = given?.account ?? (await buildAccount(app))
  const lab = given?.lab ?? (await buildLab(app, account))
  const staffKey = await buildOperatorKey(app, { role: 'staff', accountId: account.id })
  const adminKey = await buildOperatorKey(app, { role: 'admin', accountId: account.id })
  const test = await buildTest(app, lab)
  const base = `/operator/accounts/${account.id}`
  const call = (method: string, path: string, options: object) => app.call(method, `${base}${path}`, options)
  const createPhlebotomist = async (name: string) => {
    const { body } = await call('POST', '/phlebotomists', { token: adminKey, body: { name } })
    // Ids of one millisecond are in no order.
    app.clock.advance(1)
    return body.phlebotomistId as string
  }
  const { knex } = app.database
  const asIntegrator = async (path: string, body: Record<string, unknown>) => {
    const { token } = await app.accessTokens.issue(account.id)
    const answer = await app.call('POST', path, { token, body })
    if (answer.status !== 200) throw new Error(JSON.stringify(answer.body))
    return answer.body
  }
  return {
    app,
    account,
    lab,
    staffKey,
    adminKey,
    test,
    phlebotomistId: await createPhlebotomist('Santosh Pawar'),
    otherPhlebotomistId: await createPhlebotomist('Meena Jadhav'),
    post: (path, body, token = staffKey) => call('POST', path, { token, body }),
    get: (path, query = {}, token = staffKey) => call('GET', path, { token, query }),
    putPdf: (path, pdf = PDF) =>
      call('POST', path, { token: staffKey, rawBody: pdf, headers: { 'content-type': 'application/pdf' } }),
    createEntry: async (fields = {}) =>
      (await asIntegrator('/client/crm/lead/create', leadBody(lab, { tests: [{ test: test.id }], ...fields }))).leadId,
    createBooking: async (fields = {}) =>
      (await asIntegrator('/client/crm/lead/create', bookingBody(lab, { tests: [{ test: test.id }], ...fields })))
        .leadId,
    preBook: async (fields = {}) => {
      const patient = { first_name: 'Farhan', last_name: 'Shaikh', gender: 'male', age: 34, age_type: 'year' }
      const body = { labID: lab.id, patient_details: patient, integrator_id: 'PB-1', lead_source: 'Website' }
      const mapped = { mapped_tests: [{ id: test.id }] }
      return (await asIntegrator('/client/billing/create', { ...body, ...mapped, ...fields })).preBookingID
    },
    eventTypes: async () => knex('events').where({ account_id: account.id }).pluck('type'),
    eventsOf: async (subjectId) => {
      const rows = await knex('events as e')
        .join('event_bodies as b', 'b.event_id', 'e.id')
        .where({ 'e.subject_id': subjectId })
        .select('b.body')
      const versionOf = (event: any) => Object.values<any>(event.data)[0].version as number
      return rows.map(({ body }) => JSON.parse(body.toString('utf8'))).sort((a, b) => versionOf(a) - versionOf(b))
    },
  }
}

/** Of an answer that must be one of success. */
export function done(answer: Answer): any {
  if (answer.status >= 300) throw new Error(`${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

/** A billed booking with a report that has its file. */
export async function uploadedReport(world: StaffWorld): Promise<{ billId: string; reportId: string; leadId: string }> {
  const leadId = await world.createBooking()
  const { billId } = done(await world.post(`/bookings/${leadId}/bill`, {}))
  const { reportId } = done(await world.post(`/bills/${billId}/reports`, {}))
  done(await world.putPdf(`/reports/${reportId}/upload`))
  return { billId, reportId, leadId }
}
