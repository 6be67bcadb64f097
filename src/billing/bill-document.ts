/**
 * A bill and a quotation as a patient gets them: lines of a document. Pure.
 */
import type { Lab } from '../catalogue/labs-repository.ts'
import type { Entry } from '../crm/entry-rules.ts'
import { localDay } from '../crm/zoned-time.ts'
import { fullName } from '../patients/person-name.ts'
import { PDF_COLUMNS } from '../text-pdf.ts'
import { quotedItems, type Bill, type CataloguePrices } from './bill-rules.ts'

const AMOUNT_COLUMNS = 16
const NAME_COLUMNS = PDF_COLUMNS - AMOUNT_COLUMNS

type Row = [name: string, amount: number | null]

/** @param timeZone the account's, in which the day of the bill is told */
export function billLines(bill: Bill, lab: Lab, timeZone: string): string[] {
  const day = localDay(bill.createdAt.getTime(), timeZone)
  return [
    ...headOf(lab),
    `Bill ${bill.id}, ${day}`,
    bill.patientName,
    '',
    ...bill.items.flatMap(({ name, price }) => toLines([name, price])),
    ...totalLines(bill.discountAmount, bill.totalAmount),
  ]
}

/**
 * @param amount what the entry would be billed at
 * @param day on which it is told, `YYYY-MM-DD`
 */
export function quotationLines(entry: Entry, lab: Lab, known: CataloguePrices, amount: number, day: string): string[] {
  return [
    ...headOf(lab),
    `Quotation, ${day}`,
    fullName(entry.firstName, entry.lastName),
    '',
    ...quotedItems(entry, known).flatMap(({ name, price }) => toLines([name, price])),
    ...totalLines(entry.discountAmount, amount),
  ]
}

function headOf({ name, contact }: Lab): string[] {
  return [name, contact, '']
}

function totalLines(discountAmount: number | null, totalAmount: number | null): string[] {
  const discount: Row[] = discountAmount ? [['Discount', -discountAmount]] : []
  const rows: Row[] = [...discount, ['Total (Rs)', totalAmount]]
  return ['-'.repeat(PDF_COLUMNS), ...rows.flatMap(toLines)]
}

/** A name that is too long goes on below; the amount stands beside its first line. */
function toLines([name, amount]: Row): string[] {
  const width = NAME_COLUMNS - 2
  const points = [...name]
  const parts = Array.from({ length: Math.max(1, Math.ceil(points.length / width)) }, (_, part) =>
    points.slice(part * width, (part + 1) * width).join(''),
  )
  const shown = amount === null ? 'to be told' : amount.toFixed(2)
  return parts.map((part, index) => (index === 0 ? part.padEnd(NAME_COLUMNS) + shown.padStart(AMOUNT_COLUMNS) : part))
}
