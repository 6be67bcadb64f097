/**
 * People who live through everything that leaves something of them, the calls that erase them, and a look at every table,
 * every file and every line of the log.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { afterAll, beforeAll, expect } from 'vitest'
import type { RunningDaemon } from '../../daemon/daemon.ts'
import { examine } from '../../scripts/doctor/examination.ts'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { findAccount } from '../../src/accounts/accounts-repository.ts'
import { findLab } from '../../src/catalogue/labs-repository.ts'
import { unseal, type Keys } from '../../src/crypto.ts'
import { EVENT_TYPES } from '../../src/events/event-types.ts'
import { done, openStaffWorld, type Answer, type StaffWorld } from '../staff/staff-world.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { newContact } from '../support/builders.ts'
import { DeliveryWorld, type TestWebhook } from '../support/delivery-world.ts'
import { createTestTls } from '../support/tls.ts'

export interface Person {
  /** Stands in every text of theirs. */
  mark: string
  contact: string
  email: string
  patientToken: string
  preBookingId: string
}

type Rows = Map<string, string[]>

export class ErasureWorld {
  app!: TestApp
  tls!: Awaited<ReturnType<typeof createTestTls>>
  deliveries!: DeliveryWorld
  receiver!: HttpsReceiver
  daemon!: RunningDaemon
  staff!: StaffWorld
  live!: TestWebhook
  failing!: TestWebhook
  /** Until then the slow endpoint answers nobody. */
  released: Promise<void> = Promise.resolve()
  #token!: string
  #people = 0

  async open(): Promise<void> {
    this.tls = await createTestTls()
    const app = await startTestApp()
    this.app = app
    app.clock.set(new Date(await app.database.readTimeMs()).toISOString())
    // Endpoints that repeat what they were sent.
    this.receiver = await startHttpsReceiver(this.tls, async ({ path, body }) => {
      if (path.startsWith('/slow')) await this.released
      return { status: path.includes('/down') ? 503 : 200, body: body.toString('utf8').slice(0, 900) }
    })
    const deliveries = await new DeliveryWorld(app.database).open()
    this.deliveries = deliveries
    const { url } = this.receiver
    this.live = await deliveries.webhook({ endpoint: url, events: [...EVENT_TYPES] })
    this.failing = await deliveries.webhook({ endpoint: `${url}/down`, events: [...EVENT_TYPES] })
    const account = (await findAccount(app.database.knex, deliveries.accountId))!
    const lab = (await findLab(app.database.knex, account.id, deliveries.labId))!
    this.staff = await openStaffWorld(app, { account, lab })
    this.#token = (await app.accessTokens.issue(account.id)).token
    const list = { account_id: account.id, list: 'lead_source', position: 0, value: 'Website' }
    await app.database.knex('operator_lists').insert(list)
    await this.startDaemon()
  }

  async close(): Promise<void> {
    await this.deliveries.close()
    await this.receiver.close()
    await this.app.close()
    this.tls.remove()
  }

  async startDaemon(): Promise<void> {
    this.daemon = await this.deliveries.daemon(this.tls.caFile)
  }

  /** Someone of whom there is something in every place that takes something of a patient. */
  async liveThroughAll(): Promise<Person> {
    const { staff } = this
    const mark = `Zq${String.fromCharCode(97 + this.#people++).repeat(3)}xanthippe`
    const contact = newContact()
    const email = `${mark}@example.in`
    const fields = {
      ...{ first_name: `${mark} first`, last_name: `${mark} last`, contact, email: ` ${email.toUpperCase()}` },
      ...{ integratorID: `${mark}-1`, address: `${mark} road`, notes: `${mark} notes`, source: `${mark} source` },
      unmappedTests: [{ name: `${mark} test` }],
    }
    const leadId = await staff.createEntry(fields)
    done(await staff.post(`/entries/${leadId}/send-quotation`))
    const when = { bookingType: 'Home Collection', scheduledAt: '2027-11-22T07:30:00' }
    done(await staff.post(`/entries/${leadId}/convert`, when))
    done(await staff.post(`/bookings/${leadId}/assign-phlebotomist`, { phlebotomistId: staff.phlebotomistId }))
    for (const step of ['arrive', 'collect-sample', 'submit-sample'])
      done(await staff.post(`/bookings/${leadId}/${step}`))
    const wrong = done(await staff.post(`/bookings/${leadId}/bill`))
    done(await staff.post(`/bills/${wrong.billId}/delete`))
    const { billId } = done(await staff.post(`/bookings/${leadId}/bill`))
    const { reportId } = done(await staff.post(`/bills/${billId}/reports`, {}))
    const pdf = (text: string) => Buffer.from(`%PDF-1.4\n${mark} ${text}\n%%EOF\n`)
    done(await staff.putPdf(`/reports/${reportId}/upload`, pdf('result')))
    done(await staff.post(`/reports/${reportId}/sign-off`))
    done(await staff.post(`/reports/${reportId}/send`))
    done(await staff.putPdf(`/reports/${reportId}/amend`, pdf('amended')))
    const details = { first_name: mark, last_name: mark, gender: 'female', age: 77, age_type: 'year' }
    const preBooking = { patient_details: details, integrator_id: `${mark}-2`, barCode: `${mark}-tube` }
    const preBookingId = await staff.preBook({
      ...preBooking,
      unmapped_packages_with_tests: [{ package_name: `${mark} package`, tests: [`${mark} inner`] }],
    })
    const direct = { labID: staff.lab.id, firstName: mark, contact, tests: [{ test: staff.test.id }] }
    done(await staff.post('/bills', direct))
    const byHand = { labID: staff.lab.id, type: 'quotation.send', template: 'camp', text: `Dear ${mark}` }
    done(await staff.post('/messages', { ...byHand, recipient: { contact, name: mark } }))
    await this.#legacyReport(mark, contact)
    return { mark, contact, email, preBookingId, patientToken: await this.logIn(contact) }
  }

  /** A report from before bills. */
  async #legacyReport(mark: string, contact: string): Promise<void> {
    const { app, staff } = this
    const { patientId } = done(await staff.post('/patients', { contact, name: `${mark} of old` }))
    const pdf = Buffer.from(`%PDF-1.4\n${mark} of old\n%%EOF\n`)
    const file = await app.reportStore.receive(Readable.from([pdf]), app.clock.nowMs())
    const now = app.clock.now()
    await app.database.knex('reports').insert({
      ...{ id: file.id, account_id: staff.account.id, lab_id: staff.lab.id },
      ...{ patient_id: patientId, status: 'signed_off' },
      ...{ report_date: now, tests: JSON.stringify([`${mark} test of old`]), created_at: now, updated_at: now },
    })
  }

  /** Logged in, and another code on its way. */
  async logIn(contact: string): Promise<string> {
    const { app } = this
    const token = this.#token
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

  reportsOf({ patientToken }: Person): Promise<Answer> {
    return this.app.call('GET', '/client/patient/getReports', {
      token: this.#token,
      query: { labID: this.staff.lab.id },
      headers: { 'patient-authorization': `Bearer ${patientToken}` },
    })
  }

  /** Every row of every table, its blobs as text, and what is encrypted opened. */
  async readAll(): Promise<Rows> {
    const { knex } = this.app.database
    const [tables] = await knex.raw('SHOW FULL TABLES WHERE Table_type = ?', ['BASE TABLE'])
    const all: Rows = new Map()
    for (const table of tables.map((row: object) => String(Object.values(row)[0]))) {
      const rows = await knex(table)
      all.set(table, rows.map((row: Record<string, unknown>) => textOf(this.app.keys, table, row)).sort())
    }
    return all
  }

  /** Where there is something of the person: tables, files and logs. */
  async tracesOf(person: Person): Promise<string[]> {
    const words = [person.mark.toLowerCase(), person.contact]
    const has = (text: string) => words.some((word) => text.toLowerCase().includes(word))
    const tables = [...(await this.readAll())].filter(([, rows]) => rows.some(has)).map(([table]) => table)
    const files = filesIn(this.app.dataDir).some((file) => has(readFileSync(file, 'latin1'))) ? ['(files)'] : []
    const logs = this.app.logs().some((line) => has(JSON.stringify(line))) ? ['(logs)'] : []
    return [...tables, ...files, ...logs]
  }

  order(body: object, key = this.staff.adminKey): Promise<Answer> {
    return this.staff.post('/erasures', body, key)
  }

  async findings() {
    const now = new Date(await this.app.database.readTimeMs())
    const limits = {
      warnAfterSeconds: 43_200,
      warnByClockSeconds: 82_800,
      deleteAfterSeconds: 86_400,
      minWarningLeadSeconds: 0,
    }
    const examined = { knex: this.app.database.knex, now, limits, payloadRetentionDays: 30, logRetentionDays: 90 }
    return (await examine(examined, 500)).findings
  }

  /** Until everything has been tried once: the live webhook has it all, the failing one waits for retries. */
  async everythingTried(): Promise<void> {
    const { knex } = this.app.database
    const untried = async () =>
      Number((await knex('delivery_queue').where({ attempts: 0 }).count({ n: '*' }))[0]!.n) +
      Number((await knex('unrouted_events').count({ n: '*' }))[0]!.n)
    await expect.poll(untried, { timeout: 30_000 }).toBe(0)
  }
}

/** One world for all tests of the file. */
export function erasureWorld(): ErasureWorld {
  const own = new ErasureWorld()
  beforeAll(() => own.open(), 60_000)
  afterAll(() => own.close())
  return own
}

function textOf(keys: Keys, table: string, row: Record<string, any>): string {
  const opened = openSealed(keys, table, row)
  const shown = Object.entries({ ...row, opened }).map(([name, value]) => {
    return `${name}=${Buffer.isBuffer(value) ? value.toString('latin1') : JSON.stringify(value)}`
  })
  return shown.join(' ')
}

function openSealed(keys: Keys, table: string, row: Record<string, any>): string | undefined {
  const open = (sealed: Buffer | null, boundTo: string) =>
    sealed && sealed.length > 0 ? unseal(keys, sealed, boundTo).toString('utf8') : undefined
  if (table === 'otp_contacts') return open(row.contact_sealed, `otp-contact:${row.contact_hash.toString('hex')}`)
  if (table === 'sms_messages') return open(row.content, `sms:${row.id}`)
  if (table === 'erasures') return open(row.subject, `erasure:${row.id}`)
  if (table !== 'idempotency_keys') return undefined
  return open(row.answer, `${row.account_id}:${row.operation}:${row.key_hash.toString('hex')}`)
}

export function filesIn(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) =>
    entry.isDirectory() ? filesIn(join(folder, entry.name)) : [join(folder, entry.name)],
  )
}
