/**
 * A patient who has left a trace everywhere is erased: a search through every column of every table and every file finds
 * nothing any more, and whoever else is in the database has not changed by a byte.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { examine } from '../../scripts/doctor/examination.ts'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import type { RunningDaemon } from '../../daemon/daemon.ts'
import { findAccount } from '../../src/accounts/accounts-repository.ts'
import { findLab } from '../../src/catalogue/labs-repository.ts'
import { unseal } from '../../src/crypto.ts'
import { NO_COUNTS, subjectOf } from '../../src/erasure/erasure-rules.ts'
import { stepErasure } from '../../src/erasure/erasure.ts'
import { insertErasure } from '../../src/erasure/erasures-repository.ts'
import { EVENT_TYPES } from '../../src/events/event-types.ts'
import { newId, publicEventId } from '../../src/ids.ts'
import { done, openStaffWorld, type StaffWorld } from '../staff/staff-world.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { newContact } from '../support/builders.ts'
import { DeliveryWorld, type TestWebhook } from '../support/delivery-world.ts'
import { createTestTls } from '../support/tls.ts'

let app: TestApp
let tls: Awaited<ReturnType<typeof createTestTls>>
let deliveries: DeliveryWorld
let receiver: HttpsReceiver
let daemon: RunningDaemon
let world: StaffWorld
let live: TestWebhook
let failing: TestWebhook
let token: string
/** Until then the slow endpoint answers nobody. */
let released: Promise<void> = Promise.resolve()

beforeAll(async () => {
  tls = await createTestTls()
  app = await startTestApp()
  app.clock.set(new Date(await app.database.readTimeMs()).toISOString())
  // Endpoints that repeat what they were sent.
  receiver = await startHttpsReceiver(tls, async ({ path, body }) => {
    if (path.startsWith('/slow')) await released
    return { status: path.startsWith('/down') ? 503 : 200, body: body.toString('utf8').slice(0, 900) }
  })
  deliveries = await new DeliveryWorld(app.database).open()
  live = await deliveries.webhook({ endpoint: receiver.url, events: [...EVENT_TYPES] })
  failing = await deliveries.webhook({ endpoint: `${receiver.url}/down`, events: [...EVENT_TYPES] })
  const account = (await findAccount(app.database.knex, deliveries.accountId))!
  const lab = (await findLab(app.database.knex, account.id, deliveries.labId))!
  world = await openStaffWorld(app, { account, lab })
  token = (await app.accessTokens.issue(account.id)).token
  const list = { account_id: account.id, list: 'lead_source', position: 0, value: 'Website' }
  await app.database.knex('operator_lists').insert(list)
  daemon = await deliveries.daemon(tls.caFile)
}, 60_000)
afterAll(async () => {
  await deliveries.close()
  await receiver.close()
  await app.close()
  tls.remove()
})

interface Person {
  /** Stands in every text of theirs. */
  mark: string
  contact: string
  email: string
  patientToken: string
  preBookingId: string
}

let people = 0

/** Someone of whom there is something in every place that takes something of a patient. */
async function liveThroughAll(): Promise<Person> {
  const mark = `Zq${String.fromCharCode(97 + people++).repeat(3)}xanthippe`
  const contact = newContact()
  const email = `${mark}@example.in`
  const fields = {
    ...{ first_name: `${mark} first`, last_name: `${mark} last`, contact, email: ` ${email.toUpperCase()}` },
    ...{ integratorID: `${mark}-1`, address: `${mark} road`, notes: `${mark} notes`, source: `${mark} source` },
    unmappedTests: [{ name: `${mark} test` }],
  }
  const leadId = await world.createEntry(fields)
  done(await world.post(`/entries/${leadId}/send-quotation`))
  const when = { bookingType: 'Home Collection', scheduledAt: '2027-11-22T07:30:00' }
  done(await world.post(`/entries/${leadId}/convert`, when))
  done(await world.post(`/bookings/${leadId}/assign-phlebotomist`, { phlebotomistId: world.phlebotomistId }))
  for (const step of ['arrive', 'collect-sample', 'submit-sample'])
    done(await world.post(`/bookings/${leadId}/${step}`))
  const wrong = done(await world.post(`/bookings/${leadId}/bill`))
  done(await world.post(`/bills/${wrong.billId}/delete`))
  const { billId } = done(await world.post(`/bookings/${leadId}/bill`))
  const { reportId } = done(await world.post(`/bills/${billId}/reports`, {}))
  const pdf = (text: string) => Buffer.from(`%PDF-1.4\n${mark} ${text}\n%%EOF\n`)
  done(await world.putPdf(`/reports/${reportId}/upload`, pdf('result')))
  done(await world.post(`/reports/${reportId}/sign-off`))
  done(await world.post(`/reports/${reportId}/send`))
  done(await world.putPdf(`/reports/${reportId}/amend`, pdf('amended')))
  const details = { first_name: mark, last_name: mark, gender: 'female', age: 77, age_type: 'year' }
  const preBooking = { patient_details: details, integrator_id: `${mark}-2`, barCode: `${mark}-tube` }
  const preBookingId = await world.preBook({
    ...preBooking,
    unmapped_packages_with_tests: [{ package_name: `${mark} package`, tests: [`${mark} inner`] }],
  })
  const direct = { labID: world.lab.id, firstName: mark, contact, tests: [{ test: world.test.id }] }
  done(await world.post('/bills', direct))
  const byHand = { labID: world.lab.id, type: 'quotation.send', template: 'camp', text: `Dear ${mark}` }
  done(await world.post('/messages', { ...byHand, recipient: { contact, name: mark } }))
  await legacyReport(mark, contact)
  return { mark, contact, email, preBookingId, patientToken: await logIn(contact) }
}

/** A report from before bills. */
async function legacyReport(mark: string, contact: string): Promise<void> {
  const { patientId } = done(await world.post('/patients', { contact, name: `${mark} of old` }))
  const pdf = Buffer.from(`%PDF-1.4\n${mark} of old\n%%EOF\n`)
  const file = await app.reportStore.receive(Readable.from([pdf]), app.clock.nowMs())
  const now = app.clock.now()
  await app.database.knex('reports').insert({
    ...{ id: file.id, account_id: world.account.id, lab_id: world.lab.id, patient_id: patientId, status: 'signed_off' },
    ...{ report_date: now, tests: JSON.stringify([`${mark} test of old`]), created_at: now, updated_at: now },
  })
}

/** Logged in, and another code on its way. */
async function logIn(contact: string): Promise<string> {
  const ask = () => app.call('POST', '/client/patient/getLoginOTP', { token, body: { contact } })
  const { otpToken } = done(await ask())
  await app.smsSender.settle()
  const otp = app.sms.taken.at(-1)!.text.slice(0, 6)
  const body = { otp, otpToken }
  const { patientToken } = done(await app.call('POST', '/client/patient/verifyLoginOTP', { token, body }))
  app.sms.down = true
  done(await ask())
  await app.smsSender.settle()
  app.sms.down = false
  return patientToken
}

const reportsOf = async ({ patientToken }: Person) =>
  app.call('GET', '/client/patient/getReports', {
    token,
    query: { labID: world.lab.id },
    headers: { 'patient-authorization': `Bearer ${patientToken}` },
  })

type Rows = Map<string, string[]>

/** Every row of every table, its blobs as text, and what is encrypted opened. */
async function readAll(): Promise<Rows> {
  const { knex } = app.database
  const [tables] = await knex.raw('SHOW FULL TABLES WHERE Table_type = ?', ['BASE TABLE'])
  const all: Rows = new Map()
  for (const table of tables.map((row: object) => String(Object.values(row)[0]))) {
    const rows = await knex(table)
    all.set(table, rows.map((row: Record<string, unknown>) => textOf(table, row)).sort())
  }
  return all
}

function textOf(table: string, row: Record<string, any>): string {
  const opened = openSealed(table, row)
  const shown = Object.entries({ ...row, opened }).map(([name, value]) => {
    return `${name}=${Buffer.isBuffer(value) ? value.toString('latin1') : JSON.stringify(value)}`
  })
  return shown.join(' ')
}

function openSealed(table: string, row: Record<string, any>): string | undefined {
  const open = (sealed: Buffer | null, boundTo: string) =>
    sealed && sealed.length > 0 ? unseal(app.keys, sealed, boundTo).toString('utf8') : undefined
  if (table === 'otp_contacts') return open(row.contact_sealed, `otp-contact:${row.contact_hash.toString('hex')}`)
  if (table === 'sms_messages') return open(row.content, `sms:${row.id}`)
  if (table === 'erasures') return open(row.subject, `erasure:${row.id}`)
  if (table !== 'idempotency_keys') return undefined
  return open(row.answer, `${row.account_id}:${row.operation}:${row.key_hash.toString('hex')}`)
}

function filesIn(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) =>
    entry.isDirectory() ? filesIn(join(folder, entry.name)) : [join(folder, entry.name)],
  )
}

/** Where there is something of the person: tables and files. */
async function tracesOf(person: Person): Promise<string[]> {
  const words = [person.mark.toLowerCase(), person.contact]
  const has = (text: string) => words.some((word) => text.toLowerCase().includes(word))
  const tables = [...(await readAll())].filter(([, rows]) => rows.some(has)).map(([table]) => table)
  const files = filesIn(app.dataDir).some((file) => has(readFileSync(file, 'latin1'))) ? ['(files)'] : []
  const logs = app.logs().some((line) => has(JSON.stringify(line))) ? ['(logs)'] : []
  return [...tables, ...files, ...logs]
}

const order = (body: object, key = world.adminKey) => world.post('/erasures', body, key)

async function findings() {
  const now = new Date(await app.database.readTimeMs())
  const limits = {
    warnAfterSeconds: 43_200,
    warnByClockSeconds: 82_800,
    deleteAfterSeconds: 86_400,
    minWarningLeadSeconds: 0,
  }
  const examined = { knex: app.database.knex, now, limits, payloadRetentionDays: 30, logRetentionDays: 90 }
  return (await examine(examined, 500)).findings
}

/** Until everything has been tried once: the live webhook has it all, the failing one waits for retries. */
async function everythingTried(): Promise<void> {
  const { knex } = app.database
  const untried = async () =>
    Number((await knex('delivery_queue').where({ attempts: 0 }).count({ n: '*' }))[0]!.n) +
    Number((await knex('unrouted_events').count({ n: '*' }))[0]!.n)
  await expect.poll(untried, { timeout: 30_000 }).toBe(0)
}

describe('an erased patient', () => {
  test('is in no table and no file any more; whoever else is there has not changed by a byte', async () => {
    const [gone, other] = [await liveThroughAll(), await liveThroughAll()]
    await everythingTried()
    await daemon.stop()
    expect(await tracesOf(gone)).toEqual(
      expect.arrayContaining([
        ...[
          'entries',
          'entry_items',
          'pre_bookings',
          'pre_booking_items',
          'bills',
          'bill_items',
          'reports',
          'patients',
        ],
        ...['event_bodies', 'deliveries', 'otp_contacts', 'sms_messages', '(files)'],
      ]),
    )
    expect((await reportsOf(gone)).body.length).toBeGreaterThan(1)
    const before = await readAll()
    const filesBefore = new Map(filesIn(app.dataDir).map((file) => [file, readFileSync(file, 'latin1')]))
    const isOf =
      ({ mark, contact }: Person) =>
      (text: string) =>
        text.toLowerCase().includes(mark.toLowerCase()) || text.includes(contact)
    const theirs = [...before].flatMap(([table, rows]) => rows.filter(isOf(other)).map((row) => `${table} ${row}`))

    const { contact, email, preBookingId } = gone
    const report = done(await order({ contact, email, preBookingIds: [preBookingId] }))
    expect(report).toMatchObject({
      state: 'completed',
      erased: {
        entries: 1,
        entryItems: 1,
        preBookings: 1,
        bills: 3,
        reports: 2,
        reportFiles: 3,
        dayGuards: 2,
        logins: 1,
      },
    })
    expect(report.erased).toMatchObject({ textMessages: 1, patients: 3 })
    expect(report.erased.discardedCopies).toBeGreaterThan(10)
    expect(report.erased.storedAnswers).toBeGreaterThan(10)
    expect(report.remains.length).toBeGreaterThan(5)

    expect(await tracesOf(gone)).toEqual([])
    const after = await readAll()
    const left = new Set([...after].flatMap(([table, rows]) => rows.map((row) => `${table} ${row}`)))
    expect(theirs.filter((row) => !left.has(row))).toEqual([])
    for (const [file, content] of filesBefore)
      if (isOf(other)(content)) expect(readFileSync(file, 'latin1')).toBe(content)
    expect((await reportsOf(gone)).status).toBe(401)
    expect((await reportsOf(other)).body.length).toBeGreaterThan(1)
    expect(await findings()).toEqual([])

    // Nothing of the patient goes out when a daemon comes back; the other one's retries do.
    const sent = receiver.requests.length
    daemon = await deliveries.daemon(tls.caFile)
    await expect.poll(() => receiver.requests.length, { timeout: 20_000 }).toBeGreaterThan(sent)
    expect(receiver.requests.slice(sent).filter(({ body }) => isOf(gone)(body.toString('utf8')))).toEqual([])
    expect(await findings()).toEqual([])
  }, 120_000)

  test('leaves events in the log without body and answers, and none of them can be sent again', async () => {
    const person = await liveThroughAll()
    await everythingTried()
    const report = done(await order({ contact: person.contact }))
    const { knex } = app.database
    await expect
      .poll(
        async () => (
          await stepErasure(app, report.erasureId),
          knex('erasures').where({ id: report.erasureId }).first('state')
        ),
        {
          timeout: 30_000,
        },
      )
      .toEqual({ state: 'completed' })
    const [{ event_id: eventId }] = await knex('erased_events').where({ erasure_id: report.erasureId }).limit(1)
    const path = (webhookId: string) => `/deliveries/${webhookId}/${publicEventId(eventId)}`
    const logged = done(await world.get(path(failing.id)))
    expect([logged.status, logged.body]).toEqual(['discarded', null])
    expect(logged.attemptLog.some((attempt: object) => 'answer' in attempt)).toBe(false)
    const again = await world.post(`${path(live.id)}/redeliver`, {})
    expect([again.status, again.body.error.code]).toEqual([409, 'payload_expired'])
  }, 60_000)

  test('comes again with the same contact on the same day as a new person', async () => {
    const fields = { first_name: 'Nilofar', contact: newContact(), email: 'nilofar@example.in' }
    const first = await world.createEntry(fields)
    done(await order({ contact: fields.contact, email: fields.email }))
    const second = await world.createEntry(fields)
    expect(second).not.toBe(first)
    const rows = await app.database
      .knex('entries')
      .whereIn('id', [first, second])
      .orderBy('created_at')
      .select('id', 'contact')
    expect(Object.fromEntries(rows.map(({ id, contact }) => [id, contact]))).toEqual({
      [first]: null,
      [second]: fields.contact,
    })
  })

  test('erased once more is nobody: the counts are 0, by contact and by the id that the patient had', async () => {
    const contact = newContact()
    const { patientId } = done(await world.post('/patients', { contact, name: 'Rohan Bhide' }))
    expect(done(await order({ patientId })).erased.patients).toBe(1)
    for (const body of [{ patientId }, { contact }]) {
      const { state, erased } = done(await order(body))
      expect([state, ...new Set(Object.values(erased))]).toEqual(['completed', 0])
    }
  })

  test('of a family takes nobody else along, and their login stays', async () => {
    const contact = newContact()
    const leave = async (first_name: string) =>
      done(
        await world.post('/bills', {
          labID: world.lab.id,
          firstName: first_name,
          contact,
          tests: [{ test: world.test.id }],
        }),
      )
    const [asha, ravi] = [await leave('Asha'), await leave('Ravi')]
    await logIn(contact)
    const report = done(await order({ contact, name: ' asha ' }))
    expect(report.erased).toMatchObject({ bills: 1, patients: 1, logins: 1, textMessages: 0 })
    const names = await app.database.knex('bills').whereIn('id', [asha.billId, ravi.billId]).pluck('patient_name')
    expect(names.sort()).toEqual(['Erased', 'Ravi'])
    const { knex } = app.database
    expect(await knex('patients').where({ contact }).pluck('name')).toEqual(['Ravi'])
  })
})

describe('an erasure', () => {
  test('is killed after any step and goes on where it was, with nothing counted twice', async () => {
    const person = await liveThroughAll()
    await everythingTried()
    await daemon.stop()
    const { contact, email, preBookingId } = person
    const { knex } = app.database
    // As the call leaves it that was killed at once.
    const now = app.clock.now()
    const id = newId(app.clock.nowMs())
    const subject = subjectOf({ contact, email, preBookingIds: [preBookingId] })
    const fresh = { id, accountId: world.account.id, subject, counts: NO_COUNTS, createdAt: now, updatedAt: now }
    await knex.transaction((trx) =>
      insertErasure(trx, app.keys, {
        ...fresh,
        state: 'running',
        phase: 'entries',
        labId: null,
        position: null,
        finishedAt: null,
      }),
    )
    // Each step is tried, and lost before its commit; then done, by two at once.
    const losing = {
      ...app,
      database: {
        ...app.database,
        transaction: async (work: any) => {
          await app.database.knex.transaction(async (trx) => {
            await work(trx)
            throw new Error('killed')
          })
        },
      },
    } as TestApp
    for (let outcome = 'more'; outcome === 'more';) {
      await expect(stepErasure(losing, id)).rejects.toThrow('killed')
      const outcomes = await Promise.all([stepErasure(app, id), stepErasure(app, id)])
      outcome = outcomes.includes('more') ? 'more' : (await knex('erasures').where({ id }).first('state')).state
    }
    const report = done(await world.get(`/erasures/${id}`, {}, world.adminKey))
    expect(report).toMatchObject({
      state: 'completed',
      erased: { entries: 1, preBookings: 1, bills: 3, patients: 3, logins: 1 },
    })
    expect(await tracesOf(person)).toEqual([])
    expect(await findings()).toEqual([])
    daemon = await deliveries.daemon(tls.caFile)
  }, 60_000)

  test('beside staff who work with the same person loses nothing and leaves no half: what is made then is of a new patient', async () => {
    const contact = newContact()
    const leads = await Promise.all(
      ['a', 'b', 'c'].map((name) => world.createEntry({ first_name: name, contact: newContact() })),
    )
    const { knex } = app.database
    await knex('entries').whereIn('id', leads).update({ contact })
    const bill = () =>
      world.post('/bills', { labID: world.lab.id, firstName: 'Asha', contact, tests: [{ test: world.test.id }] })
    done(await bill())
    const when = { bookingType: 'Home Collection', scheduledAt: '2027-11-22T07:30:00' }
    const work = leads.flatMap((id) => [
      () => world.post(`/entries/${id}/send-quotation`),
      () => world.post(`/entries/${id}/convert`, when).then(() => world.post(`/bookings/${id}/bill`)),
    ])
    const answers = await Promise.all([...work, bill, bill, bill, () => order({ contact })].map((act) => act()))
    expect(answers.filter(({ status }) => status >= 500)).toEqual([])
    // What the call had no time for.
    while ((await stepErasure(app, answers.at(-1)!.body.erasureId)) !== 'ended');
    const bills = await knex('bills as b')
      .leftJoin('patients as p', 'p.id', 'b.patient_id')
      .where('b.account_id', world.account.id)
      .select('b.contact', 'b.patient_id', { found: 'p.id' })
    const dangling = bills.filter(
      (row) => row.patient_id !== row.found || (row.contact === null) !== (row.found === null),
    )
    expect(dangling).toEqual([])
    expect(await knex('entries').whereIn('id', leads).distinct('contact', 'first_name')).toEqual([
      { contact: null, first_name: 'Erased' },
    ])
  })

  test('takes what a daemon has read ahead: what was under way ends, and nothing starts after it', async () => {
    let release = () => {}
    released = new Promise((resolve) => (release = resolve))
    const slow = await deliveries.webhook({ endpoint: `${receiver.url}/slow`, events: ['lead.created'] })
    const { knex } = app.database
    const contact = newContact()
    const leads: string[] = []
    for (let n = 0; n < 20; n++) leads.push(await world.createEntry({ first_name: 'Zarina', contact: newContact() }))
    await knex('entries').whereIn('id', leads).update({ contact })
    const sent = () => receiver.requests.filter(({ path }) => path === '/slow').length
    const queued = async () => (await knex('delivery_queue').where({ webhook_id: slow.id })).length
    await expect.poll(async () => [sent() > 0, await queued()], { timeout: 20_000 }).toEqual([true, 20])
    // The lane has read all that waits.
    await new Promise((resolve) => setTimeout(resolve, 1000))
    const underWay = sent()

    const { erasureId } = done(await order({ contact }))
    await expect
      .poll(
        async () =>
          (await knex('lanes').where({ webhook_id: slow.id }).first('settings_changed_at')).settings_changed_at,
      )
      .toBe(null)
    release()
    await expect
      .poll(async () => (await stepErasure(app, erasureId), knex('erasures').where({ id: erasureId }).first('state')), {
        timeout: 30_000,
      })
      .toEqual({ state: 'completed' })
    expect(sent()).toBe(underWay)
    const ended = await knex('deliveries').where({ webhook_id: slow.id }).orderBy('status').pluck('status')
    expect(ended.filter((status: string) => status === 'discarded').length).toBe(20 - underWay)
    expect(await findings()).toEqual([])
  }, 90_000)

  test('is for the role admin alone, names somebody, and is seen in its own account only', async () => {
    const { status } = await order({ contact: newContact() }, world.staffKey)
    expect(status).toBe(403)
    for (const body of [{}, { name: 'Asha' }, { contact: '123' }]) expect((await order(body)).status).toBe(400)
    const unknown = newId(0)
    for (const body of [
      { patientId: unknown },
      { leadIds: [unknown] },
      { preBookingIds: [unknown] },
      { billIds: [unknown] },
    ]) {
      const answer = await order(body)
      expect([answer.status, answer.body.error.details]).toEqual([400, expect.stringContaining(unknown)])
    }
    expect((await world.get(`/erasures/${unknown}`, {}, world.adminKey)).status).toBe(404)
    const { erasureId } = done(await order({ contact: newContact() }))
    const elsewhere = await openStaffWorld(app)
    expect((await elsewhere.get(`/erasures/${erasureId}`, {}, elsewhere.adminKey)).status).toBe(404)
  })

  test('leaves no word of the patient in the audit', async () => {
    const contact = newContact()
    const { erasureId } = done(await order({ contact, name: 'Zubeida Khan' }))
    const rows = await app.database.knex('audit_entries').where({ operation: 'startErasure' })
    const own = rows.filter(({ targets }) => targets.includes(erasureId))
    expect(own.map(({ targets }) => JSON.parse(targets))).toEqual([{ erasureId }])
  })
})
