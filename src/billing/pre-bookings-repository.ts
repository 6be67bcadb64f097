import type { Knex } from 'knex'
import { isDuplicate } from '../../db/connection.ts'
import type { PartyKind } from '../catalogue/party-rules.ts'
import { isIdShaped } from '../ids.ts'
import { listOperatorValues } from './operator-lists-repository.ts'
import {
  barcodeHash,
  type PreBooking,
  type PreBookingReferences,
  type PreBookingRequest,
  type PricedItem,
} from './pre-booking-rules.ts'

/** Looks up every value of the request in the account and the lab, with the prices of the request's rate list. */
export async function findPreBookingReferences(
  knex: Knex,
  accountId: string,
  body: PreBookingRequest,
): Promise<PreBookingReferences> {
  const testIds = (body.mapped_tests ?? []).flatMap(({ id }) => (id === undefined ? [] : [id]))
  const serviceIds = (body.mapped_tests ?? []).flatMap((sent) =>
    sent.service_id === undefined ? [] : [sent.service_id],
  )
  const packageIds = (body.mapped_packages ?? []).map(({ id }) => id)
  const ofLab = (table: 'tests' | 'packages', column: 'id' | 'service_id', values: string[]) =>
    listPriced(knex, accountId, body, table, column, values)
  const tests = await ofLab('tests', 'id', testIds.filter(isIdShaped))
  const services = await ofLab('tests', 'service_id', serviceIds)
  const packages = await ofLab('packages', 'id', packageIds.filter(isIdShaped))
  return {
    leadSources: await listOperatorValues(knex, accountId, 'lead_source'),
    rateListTypes: await listOperatorValues(knex, accountId, 'rate_list_type'),
    doctorIds: body.doctor === undefined ? [] : await listPartyIds(knex, accountId, 'doctor'),
    hospitalIds: body.hospital === undefined ? [] : await listPartyIds(knex, accountId, 'hospital'),
    // Maps, because the server takes `x ` for `x` and these ids are compared by bytes.
    testsById: new Map(tests.map((item) => [item.id, item])),
    testsByServiceId: new Map(services.map((item) => [item.serviceId!, item])),
    packages: new Map(packages.map((item) => [item.id, item])),
  }
}

async function listPriced(
  knex: Knex,
  accountId: string,
  body: PreBookingRequest,
  table: 'tests' | 'packages',
  column: 'id' | 'service_id',
  values: string[],
): Promise<(PricedItem & { serviceId: string | null })[]> {
  if (values.length === 0) return []
  const rows = await knex(`${table} as i`)
    .leftJoin('rate_list_prices as p', (join) =>
      join
        .on('p.item_id', 'i.id')
        .andOn('p.account_id', 'i.account_id')
        .andOn('p.rate_list_type', knex.raw('?', [body.rate_list_type ?? ''])),
    )
    .where({ 'i.account_id': accountId, 'i.lab_id': body.labID, 'i.active': true })
    .whereIn(`i.${column}`, values)
    .select('i.*', { list_price: 'p.price' })
  return rows.map((row) => ({
    id: row.id,
    name: row.name,
    price: row.list_price ?? row.cost ?? row.total,
    serviceId: row.service_id ?? null,
  }))
}

async function listPartyIds(knex: Knex, accountId: string, kind: PartyKind): Promise<string[]> {
  const rows = await knex('parties').where({ account_id: accountId, kind }).orderBy('id').select('id')
  return rows.map((row) => row.id)
}

/**
 * The barcode's unique key decides which of several at once gets it; who loses has written nothing.
 * @returns false when another pre-booking of any account has the barcode
 */
export async function insertPreBooking(trx: Knex.Transaction, preBooking: PreBooking): Promise<boolean> {
  try {
    await trx('pre_bookings').insert({
      id: preBooking.id,
      account_id: preBooking.accountId,
      lab_id: preBooking.labId,
      version: preBooking.version,
      status: preBooking.status,
      integrator_id: preBooking.integratorId,
      first_name: preBooking.firstName,
      last_name: preBooking.lastName,
      gender: preBooking.gender,
      age: preBooking.age,
      age_type: preBooking.ageType,
      lead_source: preBooking.leadSource,
      rate_list_type: preBooking.rateListType,
      doctor_id: preBooking.doctorId,
      hospital_id: preBooking.hospitalId,
      barcode: preBooking.barcode,
      barcode_hash: preBooking.barcode === null ? null : barcodeHash(preBooking.barcode),
      created_at: preBooking.createdAt,
      updated_at: preBooking.createdAt,
    })
  } catch (error) {
    if (isDuplicate(error)) return false
    throw error
  }
  const rows = preBooking.items.map(({ kind, itemId, name, price, tests }, position) => ({
    pre_booking_id: preBooking.id,
    position,
    kind,
    item_id: itemId,
    name,
    price,
    tests: tests && JSON.stringify(tests),
  }))
  if (rows.length > 0) await trx('pre_booking_items').insert(rows)
  return true
}
