/**
 * Bills, made of a booking, of a pre-booking, or directly; and the pre-bookings that wait for theirs.
 */
import type { Knex } from 'knex'
import { sendThrough } from '../../db/batch.ts'
import type { Account } from '../accounts/accounts-repository.ts'
import { findAccountFor } from '../auth/staff-access.ts'
import { findLab } from '../catalogue/labs-repository.ts'
import { findEntryReferences } from '../crm/entry-references-repository.ts'
import { itemsOf, requireReferencesOfStaff, type EntryRequest } from '../crm/entry-rules.ts'
import { areIdsShaped } from '../crm/staff-lists.ts'
import { badRequest, notFound, unknownId } from '../errors.ts'
import type { components } from '../generated/operator.ts'
import { inKeyedTransaction, WITHOUT_KEY, type Idempotency } from '../idempotency/idempotency.ts'
import type { HandlerDeps, OperatorHandler } from '../handlers.ts'
import { cutPage, pageById } from '../paging.ts'
import { fullName } from '../patients/person-name.ts'
import { removeDiscarded } from '../reports/report-store.ts'
import { billBooking, billDirectly, billPreBooking, deleteBill, type FileDiscardingCall } from './bill-actions.ts'
import type { Bill, BillSource } from './bill-rules.ts'
import { findBill, listBills } from './bills-repository.ts'
import type { PreBooking } from './pre-booking-rules.ts'
import { findPreBooking, listPreBookings } from './staff-pre-bookings-repository.ts'

type Schemas = components['schemas']

interface BillHandlers {
  listPreBookings: OperatorHandler<'listPreBookings'>
  getPreBooking: OperatorHandler<'getPreBooking'>
  billPreBooking: OperatorHandler<'billPreBooking'>
  billBooking: OperatorHandler<'billBooking'>
  createBill: OperatorHandler<'createBill'>
  listBills: OperatorHandler<'listBills'>
  getBill: OperatorHandler<'getBill'>
  deleteBill: OperatorHandler<'deleteBill'>
}

type BillChangingCall = Pick<Parameters<OperatorHandler<'deleteBill'>>[0], 'operator' | 'audit'> & {
  /** Of those that make one. */
  idempotency?: Idempotency
}

export function billHandlers({ database, clock, hint, reportStore }: HandlerDeps): BillHandlers {
  const { knex } = database

  /** One action that makes or changes a bill: with its event and who did it in one transaction. */
  async function act<Status extends 200 | 201>(
    { operator, audit, idempotency = WITHOUT_KEY }: BillChangingCall,
    accountId: string,
    status: Status,
    action: (call: FileDiscardingCall, account: Account) => Promise<Bill>,
  ): Promise<{ status: Status; body: Schemas['Bill'] }> {
    const account = await findAccountFor(knex, operator, 'staff', accountId)
    let discardedFiles: string[] = []
    const work = async (trx: Knex.Transaction) => {
      discardedFiles = []
      const changed = await action({ trx, accountId: account.id, now: clock.now(), discardedFiles }, account)
      await audit.record(trx, account.id, { billId: changed.id })
      return { status, body: toBillRow(changed) }
    }
    const answer = await inKeyedTransaction(database, idempotency, work, { personRecordIdOf: ({ billId }) => billId })
    hint()
    await removeDiscarded(reportStore, discardedFiles)
    return answer
  }

  return {
    async listPreBookings({ path, query, operator }) {
      const { limit, afterId } = pageById(query)
      const account = await findAccountFor(knex, operator, 'staff', path.accountId)
      const filter = { labId: query.labID, status: query.status, after: afterId }
      const rows = areIdsShaped(query.labID) ? await listPreBookings(knex, account.id, filter, limit + 1) : []
      const { shown, nextCursor } = cutPage(rows, limit, ({ id }) => [id])
      return { status: 200, body: { preBookings: shown.map(toPreBookingRow), nextCursor } }
    },

    async getPreBooking({ path, operator }) {
      const account = await findAccountFor(knex, operator, 'staff', path.accountId)
      const preBooking = await findPreBooking(knex, account.id, path.preBookingID)
      if (!preBooking) throw notFound('pre-booking not found')
      return { status: 200, body: toPreBookingRow(preBooking) }
    },

    async billPreBooking({ path, body, ...call }) {
      return act(call, path.accountId, 201, (billing) => billPreBooking(billing, path.preBookingID, body))
    },

    async billBooking({ path, body, ...call }) {
      return act(call, path.accountId, 201, (billing) => billBooking(billing, path.leadId, body))
    },

    async createBill({ path, body, ...call }) {
      const { tests, packages } = body
      if (!tests?.length && !packages?.length) throw badRequest('at least one of tests and packages must be sent')
      return act(call, path.accountId, 201, async (billing, account) => {
        const { contact, discountAmount, totalAmount } = body
        const source = await directSource(billing.trx, account, body)
        return billDirectly(billing, source, { contact, discountAmount, totalAmount })
      })
    },

    async listBills({ path, query, operator }) {
      const { limit, afterId } = pageById(query)
      const account = await findAccountFor(knex, operator, 'staff', path.accountId)
      const { labID: labId, status, leadId, preBookingID: preBookingId } = query
      const filter = { labId, status, leadId, preBookingId, after: afterId }
      const isPossible = areIdsShaped(labId, leadId, preBookingId)
      const rows = isPossible ? await listBills(knex, account.id, filter, limit + 1) : []
      const { shown, nextCursor } = cutPage(rows, limit, ({ id }) => [id])
      return { status: 200, body: { bills: shown.map(toBillRow), nextCursor } }
    },

    async getBill({ path, operator }) {
      const account = await findAccountFor(knex, operator, 'staff', path.accountId)
      const bill = await findBill(knex, account.id, path.billId)
      if (!bill) throw notFound('bill not found')
      return { status: 200, body: toBillRow(bill) }
    },

    async deleteBill({ path, ...call }) {
      return act(call, path.accountId, 200, (billing) => deleteBill(billing, path.billId))
    },
  }
}

/** @throws 400 with every id that the account or the lab does not have; 409 where the lab is inactive */
async function directSource(
  trx: Knex.Transaction,
  account: Account,
  body: Schemas['DirectBillRequest'],
): Promise<BillSource> {
  const { labID, corporateUser, referredOrganization, referredHospitalOrganization, tests, packages } = body
  const lab = await findLab(trx, account.id, labID)
  if (!lab) throw unknownId('lab', labID, 'labID')
  const parties = { corporateUser, referredOrganization, referredHospitalOrganization }
  // The same ids as of a booking, looked up in the same way; nobody is assigned.
  const wish: EntryRequest = {
    branchID: labID,
    first_name: body.firstName,
    phase: 'booking',
    ...parties,
    tests,
    packages,
  }
  const known = await findEntryReferences(sendThrough(trx), { accountId: account.id, body: wish })
  requireReferencesOfStaff(wish, known)
  return {
    labId: lab.id,
    integratorId: body.integratorID ?? null,
    entryId: null,
    preBookingId: null,
    patientName: fullName(body.firstName, body.lastName ?? null),
    contact: null,
    corporateId: corporateUser ?? null,
    doctorId: referredOrganization ?? null,
    hospitalId: referredHospitalOrganization ?? null,
    discountAmount: null,
    totalAmount: null,
    items: itemsOf(wish, known),
  }
}

export function toBillRow(bill: Bill): Schemas['Bill'] {
  return {
    billId: bill.id,
    version: bill.version,
    labID: bill.labId,
    status: bill.status,
    integratorID: bill.integratorId,
    leadId: bill.entryId,
    preBookingID: bill.preBookingId,
    patientId: bill.patientId,
    patientName: bill.patientName,
    contact: bill.contact,
    corporateUser: bill.corporateId,
    referredOrganization: bill.doctorId,
    referredHospitalOrganization: bill.hospitalId,
    items: bill.items.map(({ kind, itemId, name, price, reportId }, index) => ({
      item: index + 1,
      kind,
      id: itemId,
      name,
      price,
      reportId,
    })),
    discountAmount: bill.discountAmount,
    totalAmount: bill.totalAmount,
    createdAt: bill.createdAt.toISOString(),
    completedAt: bill.completedAt?.toISOString() ?? null,
    deletedAt: bill.deletedAt?.toISOString() ?? null,
  }
}

function toPreBookingRow(preBooking: PreBooking): Schemas['PreBooking'] {
  return {
    preBookingID: preBooking.id,
    version: preBooking.version,
    labID: preBooking.labId,
    status: preBooking.status,
    integrator_id: preBooking.integratorId,
    firstName: preBooking.firstName,
    lastName: preBooking.lastName,
    gender: preBooking.gender,
    age: preBooking.age,
    ageType: preBooking.ageType,
    leadSource: preBooking.leadSource,
    rateListType: preBooking.rateListType,
    doctor: preBooking.doctorId,
    hospital: preBooking.hospitalId,
    barCode: preBooking.barcode,
    items: preBooking.items.map(({ kind, itemId, name, price }, index) => ({
      item: index + 1,
      kind,
      id: itemId,
      name,
      price,
    })),
    createdAt: preBooking.createdAt.toISOString(),
  }
}
