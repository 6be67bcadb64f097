/**
 * A patient who has left a trace everywhere is erased: a search through every column of every table and every file finds
 * nothing any more, and whoever else is in the database has not changed by a byte.
 */
import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { stepErasure } from '../../src/erasure/erasure.ts'
import { publicEventId } from '../../src/ids.ts'
import { done } from '../staff/staff-world.ts'
import { newContact } from '../support/builders.ts'
import { erasureWorld, filesIn, type Person } from './erasure-world.ts'

const own = erasureWorld()

describe('an erased patient', () => {
  test('is in no table and no file any more; whoever else is there has not changed by a byte', async () => {
    const [gone, other] = [await own.liveThroughAll(), await own.liveThroughAll()]
    await own.everythingTried()
    await own.daemon.stop()
    expect(await own.tracesOf(gone)).toEqual(
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
    expect((await own.reportsOf(gone)).body.length).toBeGreaterThan(1)
    const before = await own.readAll()
    const filesBefore = new Map(filesIn(own.app.dataDir).map((file) => [file, readFileSync(file, 'latin1')]))
    const isOf =
      ({ mark, contact }: Person) =>
      (text: string) =>
        text.toLowerCase().includes(mark.toLowerCase()) || text.includes(contact)
    const theirs = [...before].flatMap(([table, rows]) => rows.filter(isOf(other)).map((row) => `${table} ${row}`))

    const { contact, email, preBookingId } = gone
    const report = done(await own.order({ contact, email, preBookingIds: [preBookingId] }))
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

    expect(await own.tracesOf(gone)).toEqual([])
    const after = await own.readAll()
    const left = new Set([...after].flatMap(([table, rows]) => rows.map((row) => `${table} ${row}`)))
    expect(theirs.filter((row) => !left.has(row))).toEqual([])
    for (const [file, content] of filesBefore)
      if (isOf(other)(content)) expect(readFileSync(file, 'latin1')).toBe(content)
    expect((await own.reportsOf(gone)).status).toBe(401)
    expect((await own.reportsOf(other)).body.length).toBeGreaterThan(1)
    expect(await own.findings()).toEqual([])

    // Nothing of the patient goes out when a daemon comes back; the other one's retries do.
    const sent = own.receiver.requests.length
    await own.startDaemon()
    await expect.poll(() => own.receiver.requests.length, { timeout: 20_000 }).toBeGreaterThan(sent)
    expect(own.receiver.requests.slice(sent).filter(({ body }) => isOf(gone)(body.toString('utf8')))).toEqual([])
    expect(await own.findings()).toEqual([])
  }, 120_000)

  test('leaves events in the log without body and answers, and none of them can be sent again', async () => {
    const person = await own.liveThroughAll()
    await own.everythingTried()
    const report = done(await own.order({ contact: person.contact }))
    const { knex } = own.app.database
    await expect
      .poll(
        async () => (
          await stepErasure(own.app, report.erasureId),
          knex('erasures').where({ id: report.erasureId }).first('state')
        ),
        { timeout: 30_000 },
      )
      .toEqual({ state: 'completed' })
    const [{ event_id: eventId }] = await knex('erased_events').where({ erasure_id: report.erasureId }).limit(1)
    const path = (webhookId: string) => `/deliveries/${webhookId}/${publicEventId(eventId)}`
    const logged = done(await own.staff.get(path(own.failing.id)))
    expect([logged.status, logged.body]).toEqual(['discarded', null])
    expect(logged.attemptLog.some((attempt: object) => 'answer' in attempt)).toBe(false)
    const again = await own.staff.post(`${path(own.live.id)}/redeliver`, {})
    expect([again.status, again.body.error.code]).toEqual([409, 'payload_expired'])
  }, 60_000)

  test('comes again with the same contact on the same day as a new person', async () => {
    const fields = { first_name: 'Nilofar', contact: newContact(), email: 'nilofar@example.in' }
    const first = await own.staff.createEntry(fields)
    done(await own.order({ contact: fields.contact, email: fields.email }))
    const second = await own.staff.createEntry(fields)
    expect(second).not.toBe(first)
    const rows = await own.app.database
      .knex('entries')
      .whereIn('id', [first, second])
      .orderBy('created_at')
      .select('id', 'contact')
    expect(Object.fromEntries(rows.map(({ id, contact }) => [id, contact]))).toEqual({
      [first]: null,
      [second]: fields.contact,
    })
  })

  test('is found by the contact of a bill, where the patient has another one since', async () => {
    const { staff, app } = own
    const [before, since] = [newContact(), newContact()]
    const direct = { labID: staff.lab.id, firstName: 'Zqmoved', contact: before, tests: [{ test: staff.test.id }] }
    const { billId, patientId } = done(await staff.post('/bills', direct))
    done(await staff.post(`/bills/${billId}/send`))
    const path = `/operator/accounts/${staff.account.id}/patients/${patientId}`
    done(await app.call('PATCH', path, { token: staff.staffKey, body: { contact: since } }))
    expect(done(await own.order({ contact: before, name: 'Somebody else' })).erased.bills).toBe(0)
    expect(done(await own.order({ contact: before })).erased).toMatchObject({ bills: 1, patients: 1 })
    const [{ contact, patient_name: name }] = await app.database.knex('bills').where({ id: billId })
    expect([contact, name]).toEqual([null, 'Erased'])
  })

  test('erased once more is nobody: the counts are 0, by contact and by the id that the patient had', async () => {
    const contact = newContact()
    const { patientId } = done(await own.staff.post('/patients', { contact, name: 'Rohan Bhide' }))
    expect(done(await own.order({ patientId })).erased.patients).toBe(1)
    for (const body of [{ patientId }, { contact }]) {
      const { state, erased } = done(await own.order(body))
      expect([state, ...new Set(Object.values(erased))]).toEqual(['completed', 0])
    }
  })

  test('of a family takes nobody else along, and their login stays', async () => {
    const contact = newContact()
    const leave = async (first_name: string) =>
      done(
        await own.staff.post('/bills', {
          labID: own.staff.lab.id,
          firstName: first_name,
          contact,
          tests: [{ test: own.staff.test.id }],
        }),
      )
    const [asha, ravi] = [await leave('Asha'), await leave('Ravi')]
    await own.logIn(contact)
    const report = done(await own.order({ contact, name: ' asha ' }))
    expect(report.erased).toMatchObject({ bills: 1, patients: 1, logins: 1, textMessages: 1 })
    const names = await own.app.database.knex('bills').whereIn('id', [asha.billId, ravi.billId]).pluck('patient_name')
    expect(names.sort()).toEqual(['Erased', 'Ravi'])
    const { knex } = own.app.database
    expect(await knex('patients').where({ contact }).pluck('name')).toEqual(['Ravi'])
  })
})
