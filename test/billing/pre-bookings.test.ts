import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { updateOperatorValues } from '../../src/billing/operator-lists-repository.ts'
import { updateRateListPrice } from '../../src/billing/rate-list-prices-repository.ts'
import type { Lab } from '../../src/catalogue/labs-repository.ts'
import type { Package } from '../../src/catalogue/packages-repository.ts'
import type { Test } from '../../src/catalogue/tests-repository.ts'
import { newId } from '../../src/ids.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import {
  buildAccount,
  buildLab,
  buildPackage,
  buildParty,
  buildTest,
  nextNumber,
  type TestAccount,
} from '../support/builders.ts'

let app: TestApp
let account: TestAccount
let other: TestAccount
let lab: Lab
let otherLab: Lab
let cbc: Test
let checkup: Package

beforeAll(async () => {
  app = await startTestApp()
  account = await buildBillingAccount()
  other = await buildBillingAccount()
  lab = await buildLab(app, account)
  otherLab = await buildLab(app, other)
  cbc = await buildTest(app, lab, { serviceId: 'SRV-1001', cost: 350 })
  checkup = await buildPackage(app, lab, [cbc], { total: 1899.5 })
})
afterAll(() => app.close())

async function buildBillingAccount(fields: Parameters<typeof buildAccount>[1] = {}): Promise<TestAccount> {
  const built = await buildAccount(app, fields)
  await app.database.transaction(async (trx) => {
    await updateOperatorValues(trx, built.id, 'lead_source', ['Website', 'Partner'])
    await updateOperatorValues(trx, built.id, 'rate_list_type', ['Standard', 'Corporate'])
  })
  return built
}

const create = (body: unknown, caller = account) =>
  app.call('POST', '/client/billing/create', { token: caller.token, body })

function preBookingBody(ofLab: Lab, fields: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    labID: ofLab.id,
    patient_details: { first_name: 'Farhan', gender: 'male', age: 51, age_type: 'year' },
    integrator_id: `PB-${nextNumber()}`,
    lead_source: 'Partner',
    unmapped_tests: ['Serum bilirubin'],
    ...fields,
  }
}

const patient = (fields: Record<string, unknown>) => ({
  patient_details: { first_name: 'Farhan', gender: 'male', age: 51, age_type: 'year', ...fields },
})
const itemsOf = async (id: string) => {
  const rows = await app.database.knex('pre_booking_items').where({ pre_booking_id: id }).orderBy('position')
  return rows.map(({ kind, item_id, name, price, tests }) => [
    kind,
    item_id,
    name,
    price,
    typeof tests === 'string' ? JSON.parse(tests) : tests,
  ])
}
const count = async () => Number((await app.database.knex('pre_bookings').count({ n: '*' }).first())!.n)

describe('a pre-booking', () => {
  test('is stored as staff need it to make a bill, and sends no event', async () => {
    const doctor = await buildParty(app, account, 'doctor')
    const hospital = await buildParty(app, account, 'hospital')
    const body = preBookingBody(lab, {
      ...patient({ last_name: 'Shaikh', age: 8, age_type: 'month' }),
      mapped_tests: [{ service_id: 'SRV-1001' }, { id: cbc.id }],
      mapped_packages: [{ id: checkup.id }],
      unmapped_packages: ['Newborn screening'],
      unmapped_packages_with_tests: [{ package_name: 'Infant profile', tests: ['CBC', 'CRP'] }],
      barCode: '  4006381333931 ',
      doctor: doctor.id,
      hospital: hospital.id,
      rate_list_type: 'Standard',
      status: 'billed',
      version: 9,
    })
    const answer = await create(body)
    expect(answer.body).toEqual({
      success: true,
      message: 'Pre-booking created',
      integrator_id: body.integrator_id,
      preBookingID: expect.stringMatching(/^[0-9a-z]{26}$/),
    })
    const row = await app.database.knex('pre_bookings').where({ id: answer.body.preBookingID }).first()
    expect(row).toMatchObject({
      account_id: account.id,
      lab_id: lab.id,
      version: 1,
      status: 'created',
      integrator_id: body.integrator_id,
      first_name: 'Farhan',
      last_name: 'Shaikh',
      gender: 'male',
      age: 8,
      age_type: 'month',
      lead_source: 'Partner',
      rate_list_type: 'Standard',
      doctor_id: doctor.id,
      hospital_id: hospital.id,
      barcode: '4006381333931',
    })
    expect(await itemsOf(answer.body.preBookingID)).toEqual([
      ['test', cbc.id, cbc.name, 350, null],
      ['test', cbc.id, cbc.name, 350, null],
      ['package', checkup.id, checkup.name, 1899.5, null],
      ['test', null, 'Serum bilirubin', null, null],
      ['package', null, 'Newborn screening', null, null],
      ['package', null, 'Infant profile', null, ['CBC', 'CRP']],
    ])
    expect(Number((await app.database.knex('events').count({ n: '*' }).first())!.n)).toBe(0)
  })

  test('takes its prices from its rate list, and standard ones where the list has none', async () => {
    await updateRateListPrice(app.database.knex, account.id, 'Corporate', cbc.id, 299.99)
    const mapped = { mapped_tests: [{ id: cbc.id }], mapped_packages: [{ id: checkup.id }], unmapped_tests: [] }
    const prices = async (rate: object) => {
      const { body } = await create(preBookingBody(lab, { ...mapped, ...rate }))
      return (await itemsOf(body.preBookingID)).map(([, , , price]) => price)
    }
    expect(await prices({ rate_list_type: 'Corporate' })).toEqual([299.99, 1899.5])
    expect(await prices({ rate_list_type: 'Standard' })).toEqual([350, 1899.5])
    expect(await prices({})).toEqual([350, 1899.5])
  })

  test('needs no party on a party-scoped account', async () => {
    const scoped = await buildBillingAccount({ mode: 'party_scoped' })
    expect((await create(preBookingBody(await buildLab(app, scoped)), scoped)).status).toBe(200)
  })

  test('of a patient aged 0 or 150 is taken, and the same integrator_id twice', async () => {
    const body = preBookingBody(lab, patient({ age: 0, age_type: 'day' }))
    expect((await create(body)).status).toBe(200)
    expect((await create({ ...body, ...patient({ age: 150 }) })).status).toBe(200)
  })
})

describe('a pre-booking is refused with 400 and nothing is stored', () => {
  test.each([
    ['without labID', { labID: undefined }, 'labID is required'],
    ['without an item in any of the five arrays', { unmapped_tests: [], mapped_tests: [] }, 'at least one of'],
    ['without any of the five arrays', { unmapped_tests: undefined }, 'at least one of'],
    ['for a patient of 151 years', patient({ age: 151 }), 'age'],
    ['for a patient of less than 0', patient({ age: -1 }), 'age'],
    ['for a patient whose age is no whole number', patient({ age: 1.5 }), 'age'],
    ['for a patient whose age is a text', patient({ age: '51' }), 'age'],
    ['for a patient without gender', patient({ gender: undefined }), 'gender'],
    ['with an item that has both ids', { mapped_tests: [{ id: 'x', service_id: 'y' }] }, 'mapped_tests.0 must have exactly one of service_id, id'],
    ['with an item that has none', { mapped_tests: [{}] }, 'mapped_tests.0 must have exactly one of service_id, id'],
    ['without integrator_id', { integrator_id: undefined }, 'integrator_id is required'],
    ['with a lead source that the operator does not list', { lead_source: 'website' }, 'lead_source must be one of Website, Partner'],
    ['with a lead source that only begins like one', { lead_source: 'Website ' }, 'lead_source must be one of Website, Partner'],
    ['with an unknown rate list', { rate_list_type: 'Gold' }, 'rate_list_type must be one of Standard, Corporate'],
    ['with an unknown service id', { mapped_tests: [{ service_id: 'SRV-9999' }] }, 'unknown test SRV-9999'],
    ['with a service id that only folds to one', { mapped_tests: [{ service_id: 'srv-1001' }] }, 'unknown test srv-1001'],
    ['with a service id and a blank', { mapped_tests: [{ service_id: 'SRV-1001 ' }] }, 'unknown test SRV-1001 '],
    ['with an unmapped test without a name', { unmapped_tests: ['CBC', ''] }, 'unmapped_tests.1 must not be empty'],
    ['with an unmapped package without a name', { unmapped_packages: [''] }, 'unmapped_packages.0 must not be empty'],
    ['with one with tests without a name', { unmapped_packages_with_tests: [{ package_name: '', tests: [] }] }, 'unmapped_packages_with_tests.0.package_name'],
    ['with one with a test without a name', { unmapped_packages_with_tests: [{ package_name: 'x', tests: [''] }] }, 'unmapped_packages_with_tests.0.tests.0'],
    ['with an unknown package', { mapped_packages: [{ id: 'nothing' }] }, 'unknown package nothing'],
  ])('%s', async (_, fields, details) => {
    const before = await count()
    const answer = await create(preBookingBody(lab, fields))
    expect([answer.status, answer.body.error.details]).toEqual([400, expect.stringContaining(details)])
    expect(await count()).toBe(before)
  }) // prettier-ignore

  test('with ids of another lab or account as if they did not exist, all of them named', async () => {
    const secondLab = await buildLab(app, account)
    const elsewhere = await buildTest(app, secondLab, { serviceId: 'SRV-2002' })
    const foreign = await buildTest(app, otherLab)
    const foreignPackage = await buildPackage(app, otherLab, [foreign])
    const answer = await create(
      preBookingBody(lab, {
        mapped_tests: [{ id: cbc.id }, { id: elsewhere.id }, { service_id: 'SRV-2002' }, { id: foreign.id }],
        mapped_packages: [{ id: foreignPackage.id }],
      }),
    )
    expect(answer.status).toBe(400)
    expect(answer.body.error.fields.map(({ field }: { field: string }) => field)).toEqual([
      'mapped_tests.1.id', 'mapped_tests.2.service_id', 'mapped_tests.3.id', 'mapped_packages.0.id',
    ]) // prettier-ignore
    expect(answer.body.error.details).toContain(`unknown test ${elsewhere.id}`)
  })

  test('with a doctor or hospital of another account or the wrong kind, naming it and those that serve', async () => {
    const doctor = await buildParty(app, account, 'doctor')
    const hospital = await buildParty(app, account, 'hospital')
    const foreign = await buildParty(app, other, 'doctor')
    for (const [fields, field, served] of [
      [{ doctor: foreign.id }, 'doctor', doctor.id],
      [{ doctor: hospital.id }, 'doctor', doctor.id],
      [{ doctor: newId(0) }, 'doctor', doctor.id],
      [{ doctor: `${doctor.id} ` }, 'doctor', doctor.id],
      [{ hospital: doctor.id }, 'hospital', hospital.id],
      [{ hospital: doctor.id.toUpperCase() }, 'hospital', hospital.id],
    ] as const) {
      const { status, body } = await create(preBookingBody(lab, fields))
      expect([status, body.error.code, body.error.fields[0].field]).toEqual([400, 'unknown_party', field])
      const [allowed, refused] = body.error.details.split(', not ')
      expect(allowed).toContain(served)
      expect(allowed).not.toContain(foreign.id)
      expect(refused).toBe(Object.values(fields)[0])
    }
  })
})

test('a lab that is unknown, inactive or of another account is one 403, before ids are looked up', async () => {
  const inactive = await buildLab(app, account, { active: false })
  for (const labID of [otherLab.id, inactive.id, newId(0), 'x', '', `${lab.id}x`, lab.id.toUpperCase(), `${lab.id} `]) {
    const answer = await create(preBookingBody(lab, { labID, doctor: 'nobody' }))
    expect([answer.status, answer.body.error.details]).toEqual([403, 'labID does not belong to the account'])
  }
})

describe('a barcode', () => {
  test('that another pre-booking has, in any account, is 400; trimmed it is the same', async () => {
    expect((await create(preBookingBody(lab, { barCode: 'BC-1' }))).status).toBe(200)
    for (const [body, caller] of [
      [preBookingBody(lab, { barCode: 'BC-1' }), account],
      [preBookingBody(lab, { barCode: '\t BC-1\n' }), account],
      [preBookingBody(otherLab, { barCode: 'BC-1 ' }), other],
    ] as const) {
      const answer = await create(body, caller)
      expect([answer.status, answer.body.error]).toEqual([
        400,
        {
          details: 'barCode BC-1 already exists',
          code: 'barcode_exists',
          fields: [{ field: 'barCode', message: 'already exists' }],
        },
      ])
    }
  })

  test('is compared by bytes', async () => {
    for (const barCode of ['AB1', 'ab1', 'ÁB1', 'A\u0301B1', 'AB 1', 'AB\u00011', 'x'.repeat(4096)]) {
      expect((await create(preBookingBody(lab, { barCode }))).status).toBe(200)
      expect((await create(preBookingBody(lab, { barCode }))).status).toBe(400)
    }
  })

  test('that is empty after trimming is none', async () => {
    for (const barCode of ['', '  ', '\t\n', '']) {
      expect((await create(preBookingBody(lab, { barCode }))).status).toBe(200)
    }
  })

  test('of 64 pre-bookings at once over two accounts goes to exactly one', async () => {
    const before = await count()
    const answers = await Promise.all(
      Array.from({ length: 64 }, (_, n) =>
        n % 2 === 0
          ? create(preBookingBody(lab, { barCode: 'RACE-1' }))
          : create(preBookingBody(otherLab, { barCode: ' RACE-1 ' }), other),
      ),
    )
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1)
    expect(answers.filter(({ status }) => status === 400)).toHaveLength(63)
    expect(await count()).toBe(before + 1)
  })
})

test('no attempt of this file was answered with a fault of ours', () => {
  expect(app.logs().filter(({ status }) => Number(status) >= 500)).toEqual([])
})
