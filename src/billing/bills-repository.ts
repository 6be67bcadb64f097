import type { Knex } from 'knex'
import { isIdShaped } from '../ids.ts'
import type { Bill, BillItem, CataloguePrices } from './bill-rules.ts'

export async function insertBill(trx: Knex.Transaction, bill: Bill): Promise<void> {
  await trx('bills').insert({
    id: bill.id,
    account_id: bill.accountId,
    lab_id: bill.labId,
    version: bill.version,
    status: bill.status,
    integrator_id: bill.integratorId,
    entry_id: bill.entryId,
    pre_booking_id: bill.preBookingId,
    patient_id: bill.patientId,
    patient_name: bill.patientName,
    contact: bill.contact,
    corporate_id: bill.corporateId,
    doctor_id: bill.doctorId,
    hospital_id: bill.hospitalId,
    discount_amount: bill.discountAmount,
    total_amount: bill.totalAmount,
    created_at: bill.createdAt,
    updated_at: bill.createdAt,
  })
  const rows = bill.items.map(({ kind, itemId, name, price, tests }, position) => ({
    bill_id: bill.id,
    position,
    kind,
    item_id: itemId,
    name,
    price,
    tests: tests && JSON.stringify(tests),
  }))
  if (rows.length > 0) await trx('bill_items').insert(rows)
}

/** Locks the bill: everything about it and its reports is decided under this lock. */
export async function lockBill(trx: Knex.Transaction, accountId: string, billId: string): Promise<Bill | undefined> {
  if (!isIdShaped(billId)) return undefined
  const locked = await trx('bills').where({ account_id: accountId, id: billId }).forUpdate().first('id')
  return locked && findBill(trx, accountId, billId)
}

export async function findBill(knex: Knex, accountId: string, billId: string): Promise<Bill | undefined> {
  if (!isIdShaped(billId)) return undefined
  const rows = await knex('bills').where({ account_id: accountId, id: billId })
  return (await withItems(knex, rows))[0]
}

/** The bill of an entry that is not deleted; call under the entry's lock. */
export async function findLiveBillOfEntry(
  trx: Knex.Transaction,
  accountId: string,
  entryId: string,
): Promise<{ id: string } | undefined> {
  return trx('bills').where({ account_id: accountId, entry_id: entryId }).whereNot({ status: 'deleted' }).first('id')
}

/** Call under the bill's lock. */
export async function updateBill(trx: Knex.Transaction, bill: Bill, now: Date): Promise<void> {
  await trx('bills').where({ account_id: bill.accountId, id: bill.id }).update({
    version: bill.version,
    status: bill.status,
    completed_at: bill.completedAt,
    deleted_at: bill.deletedAt,
    updated_at: now,
  })
}

/** Names the report that covers the items. Call under the bill's lock. */
export async function updateReportOfItems(
  trx: Knex.Transaction,
  billId: string,
  positions: number[],
  reportId: string,
): Promise<void> {
  if (positions.length === 0) return
  await trx('bill_items').where({ bill_id: billId }).whereIn('position', positions).update({ report_id: reportId })
}

export interface BillFilter {
  labId?: string | undefined
  status?: string | undefined
  leadId?: string | undefined
  preBookingId?: string | undefined
  after?: string | undefined
}

/** The oldest first. */
export async function listBills(
  knex: Knex,
  accountId: string,
  { labId, status, leadId, preBookingId, after }: BillFilter,
  limit: number,
): Promise<Bill[]> {
  const query = knex('bills').where({ account_id: accountId }).orderBy('id').limit(limit)
  if (labId !== undefined) query.where({ lab_id: labId })
  if (status !== undefined) query.where({ status })
  if (leadId !== undefined) query.where({ entry_id: leadId })
  if (preBookingId !== undefined) query.where({ pre_booking_id: preBookingId })
  if (after !== undefined) query.where('id', '>', after)
  return withItems(knex, await query)
}

/** Items of a lab, and the parties that they are for: at most one. */
interface Priced {
  labId: string
  corporateId: string | null
  doctorId: string | null
  hospitalId: string | null
  items: { kind: 'test' | 'package'; itemId: string | null }[]
}

/** What the lab asks for the items, by the party's prices where it has some. */
export async function findCataloguePrices(
  knex: Knex,
  accountId: string,
  { labId, corporateId, doctorId, hospitalId, items }: Priced,
): Promise<CataloguePrices> {
  const idsOf = (kind: string) => items.flatMap((item) => (item.kind === kind && item.itemId ? [item.itemId] : []))
  const [testIds, packageIds] = [idsOf('test'), idsOf('package')]
  const party = knex.raw('?', [corporateId ?? doctorId ?? hospitalId ?? ''])
  const ofLab = { 'i.account_id': accountId, 'i.lab_id': labId }
  const tests =
    testIds.length === 0
      ? []
      : await knex('tests as i')
          .leftJoin('party_test_prices as p', (on) => on.on('p.test_id', 'i.id').andOn('p.party_id', party))
          .where(ofLab)
          .whereIn('i.id', testIds)
          .select('i.id', { price: knex.raw('COALESCE(p.cost, i.cost)') })
  const packages =
    packageIds.length === 0
      ? []
      : await knex('packages as i')
          .leftJoin('party_package_prices as p', (on) => on.on('p.package_id', 'i.id').andOn('p.party_id', party))
          .where(ofLab)
          .whereIn('i.id', packageIds)
          .select('i.id', { price: knex.raw('COALESCE(p.price, i.total)') })
  const contents =
    packageIds.length === 0
      ? []
      : await knex('packages as i')
          .join('package_tests as k', 'k.package_id', 'i.id')
          .join('tests as t', 't.id', 'k.test_id')
          .where(ofLab)
          .whereIn('i.id', packageIds)
          .orderBy(['k.package_id', 'k.position'])
          .select('i.id', 't.name')
  const packageTests = new Map<string, string[]>()
  for (const { id, name } of contents) packageTests.set(id, [...(packageTests.get(id) ?? []), name])
  return { prices: new Map([...tests, ...packages].map(({ id, price }) => [id, price])), packageTests }
}

async function withItems(knex: Knex, rows: Record<string, unknown>[]): Promise<Bill[]> {
  if (rows.length === 0) return []
  const ids = rows.map((row) => row.id as string)
  const items = await knex('bill_items').whereIn('bill_id', ids).orderBy(['bill_id', 'position'])
  const itemsOf = new Map<string, BillItem[]>(ids.map((id) => [id, []]))
  for (const row of items) {
    itemsOf.get(row.bill_id)!.push({
      kind: row.kind,
      itemId: row.item_id,
      name: row.name,
      price: row.price,
      // MariaDB answers JSON as text, MySQL as a value.
      tests: typeof row.tests === 'string' ? JSON.parse(row.tests) : row.tests,
      reportId: row.report_id,
    })
  }
  return rows.map((row) => toBill(row, itemsOf.get(row.id as string)!))
}

function toBill(row: Record<string, any>, items: BillItem[]): Bill {
  return {
    id: row.id,
    accountId: row.account_id,
    labId: row.lab_id,
    version: row.version,
    status: row.status,
    integratorId: row.integrator_id,
    entryId: row.entry_id,
    preBookingId: row.pre_booking_id,
    patientId: row.patient_id,
    patientName: row.patient_name,
    contact: row.contact,
    corporateId: row.corporate_id,
    doctorId: row.doctor_id,
    hospitalId: row.hospital_id,
    items,
    discountAmount: row.discount_amount,
    totalAmount: row.total_amount,
    createdAt: row.created_at,
    completedAt: row.completed_at,
    deletedAt: row.deleted_at,
  }
}
