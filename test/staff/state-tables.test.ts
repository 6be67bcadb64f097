/**
 * Every operation of staff in every state, compared with the tables in the README.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { BILL_ACTIONS } from '../../src/billing/bill-rules.ts'
import { ENTRY_ACTIONS } from '../../src/crm/booking-rules.ts'
import { REPORT_ACTIONS } from '../../src/reports/report-rules.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { done, openStaffWorld, type Answer, type StaffWorld } from './staff-world.ts'

interface Row {
  operation: string
  state: string
  /** A state, `stays` or `409`. */
  cell: string
  events: string[]
}

let app: TestApp
let world: StaffWorld

beforeAll(async () => {
  app = await startTestApp()
  world = await openStaffWorld(app)
})
afterAll(() => app.close())

/** The cells of the README's table that has this state for its first. */
function tableOf(firstState: string): Row[] {
  const lines = readFileSync(join(import.meta.dirname, '..', '..', 'README.md'), 'utf8').split('\n')
  const start = lines.findIndex((line) => new RegExp(`^\\| operation +\\| ${firstState} `).test(line))
  const end = lines.findIndex((line, index) => index > start && !line.startsWith('|'))
  const cellsOf = (line: string) => line.split('|').slice(1, -1).map((cell) => cell.trim()) // prettier-ignore
  const states = cellsOf(lines[start]!).slice(1, -1)
  return lines.slice(start + 2, end).flatMap((line) => {
    const cells = cellsOf(line)
    const events = [...cells.at(-1)!.matchAll(/`([^`]+)`/g)].map(([, name]) => name!)
    return states.map((state, index) => ({
      operation: cells[0]!.replaceAll('`', ''),
      state,
      cell: cells[index + 1]!,
      events,
    }))
  })
}

/** Runs the operation on a record in the state, and holds what happens to the cell. */
async function compare(row: Row, run: () => Promise<Answer>, stateNow: () => Promise<string>): Promise<void> {
  const before = await world.eventTypes()
  const answer = await run()
  const isRefused = row.cell === '409'
  expect(answer.status >= 300 ? answer.status : 200).toBe(isRefused ? 409 : 200)
  if (isRefused) expect(answer.body.error.code).toBe('invalid_state')
  expect(await stateNow()).toBe(isRefused || row.cell === 'stays' ? row.state : row.cell)
  const after = await world.eventTypes()
  for (const type of before) after.splice(after.indexOf(type), 1)
  expect(after.sort()).toEqual(isRefused ? [] : row.events.toSorted())
}

const WHEN = { bookingType: 'Lab Visit', scheduledAt: '2026-11-25T10:00:00' }

describe('a lead or a booking', () => {
  const STEPS: [string, string][] = [
    ['Phlebotomist Assigned', 'assign-phlebotomist'],
    ['Phlebotomist Arrived', 'arrive'],
    ['Sample Collected', 'collect-sample'],
    ['Sample Submitted', 'submit-sample'],
  ]

  async function entryIn(state: string): Promise<string> {
    const unmapped = { unmappedTests: [{ name: 'Allergy panel' }] }
    if (state === 'Lead') return world.createEntry(unmapped)
    const leadId = await world.createBooking(unmapped)
    if (state === 'Cancelled') done(await world.post(`/bookings/${leadId}/cancel`))
    const last = STEPS.findIndex(([reached]) => reached === state)
    for (const [, path] of STEPS.slice(0, last + 1)) {
      const body = path === 'assign-phlebotomist' ? { phlebotomistId: world.phlebotomistId } : undefined
      done(await world.post(`/bookings/${leadId}/${path}`, body))
    }
    return leadId
  }

  const CALLS: Record<string, (leadId: string) => Promise<Answer>> = {
    convertLead: (id) => world.post(`/entries/${id}/convert`, WHEN),
    assignPhlebotomist: (id) =>
      world.post(`/bookings/${id}/assign-phlebotomist`, { phlebotomistId: world.otherPhlebotomistId }),
    recordArrival: (id) => world.post(`/bookings/${id}/arrive`),
    recordSampleCollected: (id) => world.post(`/bookings/${id}/collect-sample`),
    recordSampleSubmitted: (id) => world.post(`/bookings/${id}/submit-sample`),
    rescheduleBooking: (id) => world.post(`/bookings/${id}/reschedule`, { scheduledAt: WHEN.scheduledAt }),
    cancelBooking: (id) => world.post(`/bookings/${id}/cancel`),
    mapEntryItems: (id) => world.post(`/entries/${id}/map-items`, { items: [{ item: 2, test: world.test.id }] }),
    billBooking: (id) => world.post(`/bookings/${id}/bill`),
    sendQuotation: (id) => world.post(`/entries/${id}/send-quotation`),
    sendBooking: (id) => world.post(`/bookings/${id}/send`),
    sendPhlebotomist: (id) => world.post(`/bookings/${id}/send-phlebotomist`),
  }
  const rows = tableOf('Lead')

  test('has a cell for each operation in each state', () => {
    expect(new Set(rows.map(({ operation }) => operation))).toEqual(new Set(Object.keys(CALLS)))
    expect(rows).toHaveLength(Object.keys(ENTRY_ACTIONS).length * 7)
  })

  test.each(rows)('$operation, $state: $cell', async (row) => {
    const leadId = await entryIn(row.state)
    await compare(
      row,
      () => CALLS[row.operation]!(leadId),
      async () => done(await world.get(`/entries/${leadId}`)).bookingStatus ?? 'Lead',
    )
  })
})

describe('a bill', () => {
  async function billIn(state: string): Promise<string> {
    const { billId } = done(await world.post(`/bookings/${await world.createBooking()}/bill`))
    if (state === 'deleted') done(await world.post(`/bills/${billId}/delete`))
    if (state === 'completed') await reportIn('signed_off', billId)
    return billId
  }

  const CALLS: Record<string, (billId: string) => Promise<Answer>> = {
    createReport: (id) => world.post(`/bills/${id}/reports`),
    deleteBill: (id) => world.post(`/bills/${id}/delete`),
    sendBill: (id) => world.post(`/bills/${id}/send`),
  }
  const rows = tableOf('created')

  test('has a cell for each operation in each state', () => {
    expect(new Set(rows.map(({ operation }) => operation))).toEqual(new Set(Object.keys(CALLS)))
    expect(rows).toHaveLength(Object.keys(BILL_ACTIONS).length * 3)
  })

  test.each(rows)('$operation, $state: $cell', async (row) => {
    const billId = await billIn(row.state)
    await compare(
      row,
      () => CALLS[row.operation]!(billId),
      async () => done(await world.get(`/bills/${billId}`)).status,
    )
  })
})

describe('a report', () => {
  const CALLS: Record<string, (reportId: string) => Promise<Answer>> = {
    uploadReport: (id) => world.putPdf(`/reports/${id}/upload`),
    signOffReport: (id) => world.post(`/reports/${id}/sign-off`),
    amendReport: (id) => world.putPdf(`/reports/${id}/amend`),
    sendReport: (id) => world.post(`/reports/${id}/send`),
  }
  const rows = tableOf('draft')

  test('has a cell for each operation in each state', () => {
    expect(new Set(rows.map(({ operation }) => operation))).toEqual(new Set(Object.keys(CALLS)))
    expect(rows).toHaveLength(Object.keys(REPORT_ACTIONS).length * 4)
  })

  test.each(rows)('$operation, $state: $cell', async (row) => {
    const { billId } = done(await world.post(`/bookings/${await world.createBooking()}/bill`))
    const reportId = await reportIn(row.state, billId)
    await compare(
      row,
      () => CALLS[row.operation]!(reportId),
      async () => done(await world.get(`/reports/${reportId}`)).status,
    )
  })
})

async function reportIn(state: string, billId: string): Promise<string> {
  const { reportId } = done(await world.post(`/bills/${billId}/reports`))
  if (state !== 'draft') done(await world.putPdf(`/reports/${reportId}/upload`))
  if (state === 'signed_off') done(await world.post(`/reports/${reportId}/sign-off`))
  if (state === 'discarded') done(await world.post(`/bills/${billId}/delete`))
  return reportId
}
