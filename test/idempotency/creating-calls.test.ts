/** Every call that creates something takes an `Idempotency-Key`: a repeat gets the first answer, and creates nothing. */
import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { parse } from 'yaml'
import {
  buildAccount,
  buildLab,
  buildOperatorKey,
  bookingBody,
  leadBody,
  newContact,
  subscribeBody,
} from '../support/builders.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { done, openStaffWorld, type StaffWorld } from '../staff/staff-world.ts'

let app: TestApp
let world: StaffWorld
let admin: string

beforeAll(async () => {
  app = await startTestApp()
  world = await openStaffWorld(app)
  admin = await buildOperatorKey(app, { role: 'admin' })
  const list = { account_id: world.account.id, list: 'lead_source', position: 0, value: 'Website' }
  await app.database.knex('operator_lists').insert(list)
})
afterAll(() => app.close())

let keys = 0
const newKey = () => `creation-${++keys}`
const countOf = async (table: string) => (await app.database.knex(table).pluck('created_at')).length

function post(path: string, key: string, body?: unknown, token = admin) {
  return app.call('POST', path, { token, body, headers: { 'idempotency-key': key } })
}

interface Creation {
  /** Rows of it are counted. */
  table: string
  /** Made ready for one call. */
  call: () => Promise<{ path: string; body?: unknown }>
}

const ofAccount = (path: string) => `/operator/accounts/${world.account.id}${path}`
const ofLab = (path: string) => `/operator/labs/${world.lab.id}${path}`
const named = (path: () => string, fields: Record<string, unknown> = {}) => ({
  call: async () => ({ path: path(), body: { name: 'Kiran Rao', ...fields } }),
})
const items = () => ({ tests: [{ test: world.test.id }] })
const patient = () => ({ contact: newContact(), name: 'Asha Kulkarni' })

const CREATIONS: Record<string, Creation> = {
  createAccount: { table: 'accounts', ...named(() => '/operator/accounts', { adminEmail: 'admin@arogya.example.in' }) },
  createLab: { table: 'labs', ...named(() => ofAccount('/labs'), { contact: '9876543210' }) },
  createParty: { table: 'parties', ...named(() => ofAccount('/parties'), { kind: 'doctor' }) },
  createTelecaller: { table: 'telecallers', ...named(() => ofAccount('/telecallers')) },
  createPhlebotomist: { table: 'phlebotomists', ...named(() => ofAccount('/phlebotomists')) },
  createOperatorKey: { table: 'operator_keys', ...named(() => '/operator/keys', { role: 'staff' }) },
  issueClientSecret: {
    table: 'client_secrets',
    call: async () => ({ path: `/operator/accounts/${(await buildAccount(app)).id}/client-secrets` }),
  },
  rotateClientSecret: {
    table: 'client_secrets',
    call: async () => ({ path: `/operator/accounts/${(await buildAccount(app)).id}/client-secrets/rotate` }),
  },
  createAccountWebhook: {
    table: 'webhooks',
    call: async () => {
      const body = { labID: world.lab.id, endpoint: 'https://lims.example.in/x', events: ['lead.created'] }
      return { path: ofAccount('/webhooks'), body }
    },
  },
  startAccountRecovery: {
    table: 'recoveries',
    call: async () => {
      const body = { labID: world.lab.id, endpoint: 'https://lims.example.in/y', events: ['lead.created'] }
      const { webhook } = done(await post(ofAccount('/webhooks'), newKey(), body))
      const since = new Date(app.clock.nowMs() - 3_600_000).toISOString()
      return { path: ofAccount('/recoveries'), body: { webhookId: webhook.webhookId, since } }
    },
  },
  createTest: { table: 'tests', ...named(() => ofLab('/tests'), { code: 'IDEM', cost: 350 }) },
  createPackage: {
    table: 'packages',
    call: async () => ({
      path: ofLab('/packages'),
      body: { name: 'Full body', code: 'FB-I', total: 900, tests: [world.test.id] },
    }),
  },
  createImport: {
    table: 'catalogue_imports',
    call: async () => ({ path: ofLab('/imports'), body: { kind: 'tests' } }),
  },
  createPatient: { table: 'patients', call: async () => ({ path: ofAccount('/patients'), body: patient() }) },
  createStaffEntry: {
    table: 'entries',
    call: async () => {
      const { branchID, ...entry } = leadBody(world.lab, { ...items(), contact: newContact() })
      return { path: ofAccount('/entries'), body: { ...entry, labID: branchID } }
    },
  },
  billPreBooking: {
    table: 'bills',
    call: async () => ({
      path: ofAccount(`/pre-bookings/${await world.preBook()}/bill`),
      body: {},
    }),
  },
  billBooking: {
    table: 'bills',
    call: async () => ({ path: ofAccount(`/bookings/${await world.createBooking()}/bill`), body: {} }),
  },
  createBill: {
    table: 'bills',
    call: async () => ({
      path: ofAccount('/bills'),
      body: { labID: world.lab.id, firstName: 'Asha', contact: newContact(), ...items() },
    }),
  },
  createReport: {
    table: 'reports',
    call: async () => {
      const { billId } = done(await world.post(`/bookings/${await world.createBooking()}/bill`, {}))
      return { path: ofAccount(`/bills/${billId}/reports`), body: {} }
    },
  },
  startErasure: {
    table: 'erasures',
    call: async () => ({ path: ofAccount('/erasures'), body: { contact: newContact() } }),
  },
}

interface Contract {
  paths: Record<string, { post?: { operationId: string; parameters: unknown[]; responses: object } }>
}

const contract = parse(readFileSync(new URL('../../openapi/operator.yaml', import.meta.url), 'utf8')) as Contract

test('each call of the operator contract that answers 201 takes a key', () => {
  const posts = Object.values(contract.paths).flatMap((path) => (path.post ? [path.post] : []))
  const creating = posts.filter(({ responses }) => '201' in responses)
  expect(creating.length).toBeGreaterThan(Object.keys(CREATIONS).length)
  for (const { operationId, parameters } of creating) {
    expect([operationId, JSON.stringify(parameters).includes('Idempotency')]).toEqual([operationId, true])
    if (!/^(send|recordMessage)/.test(operationId)) expect(Object.keys(CREATIONS)).toContain(operationId)
  }
})

for (const [operation, { table, call }] of Object.entries(CREATIONS)) {
  test(`${operation}: a repeat gets the first answer and creates nothing`, async () => {
    const { path, body } = await call()
    const [key, before] = [newKey(), await countOf(table)]
    const first = await post(path, key, body)
    expect([first.status, first.headers['idempotent-replayed']]).toEqual([201, undefined])
    app.clock.advance(1000)
    const again = await post(path, key, body)
    expect([again.status, again.body, again.headers['idempotent-replayed']]).toEqual([201, first.body, 'true'])
    expect(await countOf(table)).toBe(before + 1)
    // Where there is no body, the path says what it is about.
    const other = body ? { path, body: { ...(body as object), name: 'Somebody Else' } } : await call()
    const made = await countOf(table)
    const refused = await post(other.path, key, other.body)
    expect([refused.status, refused.body.error.code]).toEqual([422, 'idempotency_mismatch'])
    expect(await countOf(table)).toBe(made)
  })
}

test('of ten bills with one key at once one is made', async () => {
  const { path, body } = await CREATIONS.createBill!.call()
  const [key, before] = [newKey(), await countOf('bills')]
  const answers = await Promise.all(Array.from({ length: 10 }, () => post(path, key, body)))
  const ids = answers.flatMap((answer) => (answer.status === 201 ? [answer.body.billId] : []))
  expect(new Set(ids).size).toBe(1)
  for (const { status } of answers) expect([201, 409]).toContain(status)
  expect(await countOf('bills')).toBe(before + 1)
})

test('an integrator who asks twice for one recovery gets one', async () => {
  const { token } = await app.accessTokens.issue(world.account.id)
  const lab = await buildLab(app, world.account)
  const subscribed = await app.call('POST', '/client/events/subscribe', {
    token,
    body: subscribeBody(lab),
  })
  const body = { webhookId: done(subscribed).data._id, since: new Date(app.clock.nowMs() - 3_600_000).toISOString() }
  const ask = () => {
    const headers = { 'idempotency-key': 'recovery-1' }
    return app.call('POST', '/client/events/recoveries', { token, body, query: { labID: lab.id }, headers })
  }
  const first = await ask()
  expect([first.status, first.headers['idempotent-replayed']]).toEqual([200, undefined])
  const again = await ask()
  expect([again.status, again.body, again.headers['idempotent-replayed']]).toEqual([200, first.body, 'true'])
})

test('what told of a person goes with their erasure, and a repeat makes it no second time', async () => {
  const contact = newContact()
  const { branchID, ...entry } = bookingBody(world.lab, { ...items(), contact })
  const calls = {
    entry: { path: ofAccount('/entries'), body: { ...entry, labID: branchID } },
    bill: { path: ofAccount('/bills'), body: { labID: world.lab.id, firstName: 'Asha', contact, ...items() } },
    patient: { path: ofAccount('/patients'), body: { contact, name: 'Meera Kulkarni' } },
  }
  for (const [key, { path, body }] of Object.entries(calls)) {
    expect([key, (await post(path, key, body)).status]).toEqual([key, 201])
  }
  const others = await post(ofAccount('/patients'), 'others', patient())
  const counts = async () => [await countOf('entries'), await countOf('bills'), await countOf('patients')]
  expect(done(await post(ofAccount('/erasures'), newKey(), { contact })).state).toBe('completed')
  const before = await counts()
  for (const [key, { path, body }] of Object.entries(calls)) {
    const repeat = await post(path, key, body)
    expect([key, repeat.status, repeat.body.error?.code]).toEqual([key, 409, 'erased'])
  }
  expect(await counts()).toEqual(before)
  const answers = await app.database.knex('idempotency_keys').whereNotNull('record_id').whereRaw("answer = ''")
  expect(answers.length).toBe(3)
  expect((await app.database.knex('idempotency_keys').where({ record_id: others.body.patientId }).first()).answer.length).toBeGreaterThan(0) // prettier-ignore
})

test('a repeat of a pre-booking does not tell the integrator’s own number of a person who has been erased since', async () => {
  const { token } = await app.accessTokens.issue(world.account.id)
  const body = {
    ...{
      labID: world.lab.id,
      integrator_id: 'PB-asha-98',
      lead_source: 'Website',
      mapped_tests: [{ id: world.test.id }],
    },
    patient_details: { first_name: 'Asha', gender: 'female', age: 34, age_type: 'year' },
  }
  const preBook = () => post('/client/billing/create', 'pre-booking', body, token)
  const { preBookingID } = done(await preBook())
  expect((await preBook()).body.preBookingID).toBe(preBookingID)
  expect(done(await post(ofAccount('/erasures'), newKey(), { preBookingIds: [preBookingID] })).state).toBe('completed')
  const repeat = await preBook()
  expect([repeat.status, repeat.body.error?.code]).toEqual([409, 'erased'])
})

test('an erasure that is asked for twice at once has one answer, and whoever comes meanwhile is told to wait', async () => {
  for (let n = 0; n < 5; n++) {
    const contact = newContact()
    done(await post(ofAccount('/patients'), newKey(), { contact, name: 'Asha Kulkarni' }))
    const key = newKey()
    const ask = () => post(ofAccount('/erasures'), key, { contact })
    const answers = await Promise.all([ask(), ask(), ask()])
    const last = done(await ask())
    expect(last).toMatchObject({ state: 'completed', erased: { patients: 1 } })
    for (const { status, body } of answers) {
      if (status === 201) expect(body).toEqual(last)
      else expect([status, body.error.code]).toEqual([409, 'idempotency_in_progress'])
    }
  }
})

test('a repeat of an erasure that is at work waits for its answer', async () => {
  const contact = newContact()
  const { patientId } = done(await post(ofAccount('/patients'), newKey(), { contact, name: 'Asha Kulkarni' }))
  const inTheWay = await app.database.knex.transaction()
  await inTheWay('patients').where({ id: patientId }).forUpdate().first('id')
  const key = newKey()
  const ask = () => post(ofAccount('/erasures'), key, { contact })
  const first = ask()
  await new Promise((resolve) => setTimeout(resolve, 200))
  const repeat = ask()
  await new Promise((resolve) => setTimeout(resolve, 400))
  await inTheWay.rollback()
  expect(done(await first)).toMatchObject({ state: 'completed', erased: { patients: 1 } })
  expect([(await repeat).status, (await repeat).body]).toEqual([201, (await first).body])
})
