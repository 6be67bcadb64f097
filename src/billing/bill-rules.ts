/**
 * Bills: what each item costs, what the patient is to pay, and what can be done with a bill. Pure.
 */
import type { Entry } from '../crm/entry-rules.ts'
import { badRequest } from '../errors.ts'
import type { PayloadItem } from '../events/event-body.ts'
import type { components } from '../generated/client.ts'
import { fullName } from '../patients/person-name.ts'
import { nextState, type ActionTable } from '../state-rules.ts'
import type { PreBooking } from './pre-booking-rules.ts'

export type BillStatus = components['schemas']['BillPayload']['status']

/** A test or package of a bill. */
export interface BillItem extends PayloadItem {
  /** What the item means in a report, where that is not its own name: the tests of a package. */
  tests: string[] | null
  /** The one report that is to cover it. */
  reportId: string | null
}

export interface Bill {
  id: string
  accountId: string
  labId: string
  /** Raised by each change. */
  version: number
  status: BillStatus
  /** Its entry's, its pre-booking's, or what staff gave it. */
  integratorId: string | null
  entryId: string | null
  preBookingId: string | null
  /** Null: no contact is known, so nobody can log in to see its reports. */
  patientId: string | null
  patientName: string
  contact: string | null
  corporateId: string | null
  doctorId: string | null
  hospitalId: string | null
  items: BillItem[]
  discountAmount: number | null
  totalAmount: number | null
  createdAt: Date
  completedAt: Date | null
  deletedAt: Date | null
}

export type BillAction = 'createReport' | 'deleteBill' | 'sendBill'

/** A bill is completed by no action of its own: its last report does it. */
export const BILL_ACTIONS: ActionTable<BillStatus, BillAction> = {
  createReport: { done: 'given a report', events: [], next: { created: 'created' } },
  deleteBill: { done: 'deleted', events: ['bill.deleted'], next: { created: 'deleted' } },
  sendBill: { done: 'sent', events: ['bill.send'], next: { created: 'created', completed: 'completed' } },
}

/** @throws 409 */
export function nextBillStatus(action: BillAction, bill: Bill): BillStatus {
  return nextState(BILL_ACTIONS, 'bill', action, bill.status)
}

/** What the catalogue knows of the items, by their ids. */
export interface CataloguePrices {
  /** The party's, or else the lab's. */
  prices: Map<string, number>
  /** Names of the tests that a package has. */
  packageTests: Map<string, string[]>
}

/** What staff may say when they bill; what is left out comes from what is billed. */
export interface BillTerms {
  contact?: string | undefined
  discountAmount?: number | undefined
  totalAmount?: number | undefined
}

/** Everything of a bill but what every new one has in common. */
export type BillSource = Pick<
  Bill,
  | 'labId'
  | 'integratorId'
  | 'entryId'
  | 'preBookingId'
  | 'patientName'
  | 'contact'
  | 'corporateId'
  | 'doctorId'
  | 'hospitalId'
  | 'discountAmount'
  | 'totalAmount'
> & { items: PayloadItem[] }

export function sourceOfBooking(booking: Entry): BillSource {
  const { labId, integratorId, contact, corporateId, doctorId, hospitalId } = booking
  const { discountAmount, totalAmount, items } = booking
  return {
    labId,
    integratorId,
    entryId: booking.id,
    preBookingId: null,
    patientName: fullName(booking.firstName, booking.lastName),
    contact,
    corporateId,
    doctorId,
    hospitalId,
    discountAmount,
    totalAmount,
    items,
  }
}

export function sourceOfPreBooking(preBooking: PreBooking): BillSource {
  return {
    labId: preBooking.labId,
    // One that was erased has none any more.
    integratorId: preBooking.integratorId || null,
    entryId: null,
    preBookingId: preBooking.id,
    patientName: fullName(preBooking.firstName, preBooking.lastName),
    contact: null,
    corporateId: null,
    doctorId: preBooking.doctorId,
    hospitalId: preBooking.hospitalId,
    discountAmount: null,
    totalAmount: null,
    items: preBooking.items,
  }
}

/** @throws 400 where the total would be negative, or more than the database holds */
export function makeBill(
  source: BillSource,
  terms: BillTerms,
  known: CataloguePrices,
  origin: { id: string; accountId: string; now: Date },
): Omit<Bill, 'patientId'> {
  const items = source.items.map((item) => billItem(item, known))
  const discountAmount = terms.discountAmount ?? source.discountAmount
  const totalAmount = terms.totalAmount ?? source.totalAmount ?? totalOf(items, discountAmount)
  return {
    ...source,
    id: origin.id,
    accountId: origin.accountId,
    version: 1,
    status: 'created',
    contact: terms.contact ?? source.contact,
    items,
    discountAmount,
    totalAmount,
    createdAt: origin.now,
    completedAt: null,
    deletedAt: null,
  }
}

/** An entry's items at the prices at which they would be billed. */
export function quotedItems(entry: Entry, known: CataloguePrices): BillItem[] {
  return entry.items.map((item) => billItem(item, known))
}

/**
 * The entry as it is once it has been quoted: an item without a price of its own costs what it was billed at, or else what the catalogue
 * says. A bill has its entry's items in their order; one that has been mapped since then was billed as another.
 * @returns the same entry where nothing changes
 */
export function quotedEntry(entry: Entry, bill: Bill | undefined, known: CataloguePrices): Entry {
  const items = entry.items.map((item, position) => {
    if (item.price !== null) return item
    const billed = bill?.items[position]
    const agreed = billed?.itemId === item.itemId ? billed.price : null
    const { price } = billItem({ ...item, price: agreed }, known)
    return price === null ? item : { ...item, price }
  })
  const isChanged = items.some((item, position) => item !== entry.items[position])
  return isChanged ? { ...entry, items, version: entry.version + 1 } : entry
}

/** Whether there is a total or a price. */
export function isQuotable(entry: Entry, known: CataloguePrices): boolean {
  return entry.totalAmount !== null || quotedItems(entry, known).some(({ price }) => price !== null)
}

/** The same where nobody can say another total or discount: the nearest one that a bill may be of. */
export function nearestAmount(entry: Entry, known: CataloguePrices): number {
  const paise = paiseOf(quotedItems(entry, known), entry.discountAmount)
  return entry.totalAmount ?? rupeesOf(Math.min(Math.max(paise, 0), MOST_PAISE))
}

/** Whether the nearest one is the one: nobody has to say another. */
export function isBillable(entry: Entry, known: CataloguePrices): boolean {
  const paise = paiseOf(quotedItems(entry, known), entry.discountAmount)
  return entry.totalAmount !== null || (paise >= 0 && paise <= MOST_PAISE)
}

/** The price that was agreed, or else the catalogue's. */
function billItem({ kind, itemId, name, price, tests }: PayloadItem, known: CataloguePrices): BillItem {
  const standard = itemId === null ? undefined : known.prices.get(itemId)
  const contents = itemId === null ? tests : known.packageTests.get(itemId)
  return { kind, itemId, name, price: price ?? standard ?? null, tests: contents ?? null, reportId: null }
}

const MOST_PAISE = 999_999_999_999

/** What the items cost less the discount, counted in hundredths: sums of decimals drift. */
function paiseOf(items: BillItem[], discountAmount: number | null): number {
  const paise = items.reduce((sum, { price }) => sum + Math.round((price ?? 0) * 100), 0)
  return paise - Math.round((discountAmount ?? 0) * 100)
}

const rupeesOf = (paise: number): number => Number((paise / 100).toFixed(2))

/** @throws 400 */
function totalOf(items: BillItem[], discountAmount: number | null): number {
  const total = paiseOf(items, discountAmount)
  if (total < 0) {
    const fault = 'must not be more than the items cost'
    throw badRequest(`discountAmount ${fault}`, 'invalid_request', 'discountAmount', fault)
  }
  if (total > MOST_PAISE) {
    const fault = 'is required: the items cost more than 9999999999.99 together'
    throw badRequest(`totalAmount ${fault}`, 'invalid_request', 'totalAmount', fault)
  }
  return rupeesOf(total)
}

/**
 * Whether nothing is left to report: each item is in a report that is signed off, and no report is a draft. A bill without
 * items has at least one report.
 */
export function isReported(
  bill: Bill,
  reports: { id: string; status: 'draft' | 'signed_off' | 'discarded' }[],
): boolean {
  const signedOff = new Set(reports.flatMap(({ id, status }) => (status === 'signed_off' ? [id] : [])))
  return (
    signedOff.size > 0 &&
    reports.every(({ status }) => status !== 'draft') &&
    bill.items.every(({ reportId }) => reportId !== null && signedOff.has(reportId))
  )
}

/** What a report on the items lists: each test once, those of a package by name. */
export function reportTestsOf(items: BillItem[]): string[] {
  return [...new Set(items.flatMap(({ name, tests }) => (tests && tests.length > 0 ? tests : [name])))]
}
