/**
 * What the lab and its phlebotomists do with bookings.
 */
import { findAccountFor } from '../auth/staff-access.ts'
import { badRequest } from '../errors.ts'
import { isIdShaped } from '../ids.ts'
import type { HandlerDeps, OperatorHandler } from '../handlers.ts'
import { cutPage, invalidCursor, pageOf, type PageRequest } from '../paging.ts'
import { assignPhlebotomist, cancelBooking, recordStep, rescheduleBooking, type EntryCall } from './booking-actions.ts'
import { type Booking, requireScheduledAt } from './entry-rules.ts'
import { listBookings } from './staff-entries-repository.ts'
import { toStaffEntry } from './staff-entry-rows.ts'
import { areIdsShaped } from './staff-lists.ts'
import { dayRange, parseDateTime, type DayRange } from './zoned-time.ts'

interface BookingHandlers {
  listBookings: OperatorHandler<'listBookings'>
  assignPhlebotomist: OperatorHandler<'assignPhlebotomist'>
  recordArrival: OperatorHandler<'recordArrival'>
  recordSampleCollected: OperatorHandler<'recordSampleCollected'>
  recordSampleSubmitted: OperatorHandler<'recordSampleSubmitted'>
  rescheduleBooking: OperatorHandler<'rescheduleBooking'>
  cancelBooking: OperatorHandler<'cancelBooking'>
}

type BookingCall = Pick<Parameters<OperatorHandler<'cancelBooking'>>[0], 'path' | 'operator' | 'audit'>

export function bookingHandlers({ database, clock, hint }: HandlerDeps): BookingHandlers {
  const { knex } = database

  /** One action on one booking: with its event and who did it in one transaction. */
  async function act({ path, operator, audit }: BookingCall, action: (call: EntryCall) => Promise<Booking>) {
    const account = await findAccountFor(knex, operator, 'staff', path.accountId)
    const booking = await database.transaction(async (trx) => {
      const changed = await action({ trx, accountId: account.id, leadId: path.leadId, now: clock.now() })
      await audit.record(trx, account.id, { leadId: changed.id })
      return changed
    })
    hint()
    return { status: 200 as const, body: toStaffEntry(booking) }
  }

  return {
    async listBookings({ path, query, operator }) {
      const page = pageOf(query, 2)
      const after = afterScheduleOf(page)
      // That there is such a day is seen before the account, and its zone, are looked for.
      if (query.day !== undefined) requireDay(query.day, 'UTC')
      const account = await findAccountFor(knex, operator, 'staff', path.accountId)
      const { phlebotomistId, labID: labId, status, day } = query
      const scheduled = day === undefined ? undefined : requireDay(day, account.timeZone)
      const filter = { phlebotomistId, labId, status, scheduled, after }
      const isPossible = areIdsShaped(phlebotomistId, labId)
      const rows = isPossible ? await listBookings(knex, account.id, filter, page.limit + 1) : []
      const { shown, nextCursor } = cutPage(rows, page.limit, ({ id, scheduledAt }) => [scheduledAt!.toISOString(), id])
      return { status: 200, body: { bookings: shown.map(toStaffEntry), nextCursor } }
    },

    assignPhlebotomist: async (call) =>
      act(call, (entryCall) => assignPhlebotomist(entryCall, call.body.phlebotomistId)),
    recordArrival: async (call) => act(call, (entryCall) => recordStep(entryCall, 'arrive')),
    recordSampleCollected: async (call) => act(call, (entryCall) => recordStep(entryCall, 'collectSample')),
    recordSampleSubmitted: async (call) => act(call, (entryCall) => recordStep(entryCall, 'submitSample')),
    cancelBooking: async (call) => act(call, cancelBooking),

    async rescheduleBooking(call) {
      const account = await findAccountFor(knex, call.operator, 'staff', call.path.accountId)
      const scheduledAt = requireScheduledAt(call.body.scheduledAt, account)
      return act(call, (entryCall) => rescheduleBooking(entryCall, scheduledAt))
    },
  }
}

/** @throws 400 for a day that does not exist */
function requireDay(day: string, timeZone: string): DayRange {
  const range = dayRange(day, timeZone)
  if (range) return range
  const fault = 'must be an existing day such as 2026-11-20'
  throw badRequest(`day ${fault}`, 'invalid_request', 'day', fault)
}

/** @throws 400 for a cursor that is none of this list */
function afterScheduleOf({ after }: PageRequest): { scheduledAt: Date; id: string } | undefined {
  if (after === undefined) return undefined
  const [time = '', id = ''] = after
  const scheduledAt = parseDateTime(time, 'UTC')
  if (!scheduledAt || !isIdShaped(id)) throw invalidCursor()
  return { scheduledAt, id }
}
