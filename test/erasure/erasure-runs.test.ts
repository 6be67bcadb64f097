/**
 * How an erasure runs: killed after any step, beside staff and a daemon who work on the same person, and who may start one.
 */
import { describe, expect, test } from 'vitest'
import { NO_COUNTS, subjectOf } from '../../src/erasure/erasure-rules.ts'
import { stepErasure } from '../../src/erasure/erasure.ts'
import { insertErasure } from '../../src/erasure/erasures-repository.ts'
import { newId } from '../../src/ids.ts'
import { done, openStaffWorld } from '../staff/staff-world.ts'
import type { TestApp } from '../support/app.ts'
import { newContact } from '../support/builders.ts'
import { erasureWorld } from './erasure-world.ts'

const own = erasureWorld()

describe('an erasure', () => {
  test('is killed after any step and goes on where it was, with nothing counted twice', async () => {
    // Somebody else is there too: what is counted is of the one alone.
    const [person] = [await own.liveThroughAll(), await own.liveThroughAll()]
    await own.everythingTried()
    await own.daemon.stop()
    const { contact, email, preBookingId } = person
    const { knex } = own.app.database
    // As the call leaves it that was killed at once.
    const now = own.app.clock.now()
    const id = newId(own.app.clock.nowMs())
    const subject = subjectOf({ contact, email, preBookingIds: [preBookingId] })
    const fresh = { id, accountId: own.staff.account.id, subject, counts: NO_COUNTS, createdAt: now, updatedAt: now }
    await knex.transaction((trx) =>
      insertErasure(trx, own.app.keys, {
        ...fresh,
        state: 'running',
        phase: 'entries',
        labId: null,
        position: null,
        finishedAt: null,
        isGivenUp: false,
      }),
    )
    // Each step is tried, and lost before its commit; then done, by two at once.
    const losing = {
      ...own.app,
      database: {
        ...own.app.database,
        transaction: async (work: any) => {
          await own.app.database.knex.transaction(async (trx) => {
            await work(trx)
            throw new Error('killed')
          })
        },
      },
    } as TestApp
    for (let outcome = 'more'; outcome === 'more';) {
      await expect(stepErasure(losing, id)).rejects.toThrow('killed')
      const outcomes = await Promise.all([stepErasure(own.app, id), stepErasure(own.app, id)])
      outcome = outcomes.includes('more') ? 'more' : (await knex('erasures').where({ id }).first('state')).state
    }
    const report = done(await own.staff.get(`/erasures/${id}`, {}, own.staff.adminKey))
    expect(report).toMatchObject({
      state: 'completed',
      erased: { entries: 1, preBookings: 1, bills: 3, patients: 3, logins: 1 },
    })
    expect(await own.tracesOf(person)).toEqual([])
    expect(await own.findings()).toEqual([])
    await own.startDaemon()
  }, 60_000)

  test('beside staff who work with the same person loses nothing and leaves no half: what is made then is of a new patient', async () => {
    const { staff } = own
    const contact = newContact()
    const leads = await Promise.all(
      ['a', 'b', 'c'].map((name) => staff.createEntry({ first_name: name, contact: newContact() })),
    )
    const { knex } = own.app.database
    await knex('entries').whereIn('id', leads).update({ contact })
    const bill = () =>
      staff.post('/bills', { labID: staff.lab.id, firstName: 'Asha', contact, tests: [{ test: staff.test.id }] })
    done(await bill())
    const when = { bookingType: 'Home Collection', scheduledAt: '2027-11-22T07:30:00' }
    const work = leads.flatMap((id) => [
      () => staff.post(`/entries/${id}/send-quotation`),
      () => staff.post(`/entries/${id}/convert`, when).then(() => staff.post(`/bookings/${id}/bill`)),
    ])
    const answers = await Promise.all([...work, bill, bill, bill, () => own.order({ contact })].map((act) => act()))
    expect(answers.filter(({ status }) => status >= 500)).toEqual([])
    // What the call had no time for.
    while ((await stepErasure(own.app, answers.at(-1)!.body.erasureId)) !== 'ended');
    const bills = await knex('bills as b')
      .leftJoin('patients as p', 'p.id', 'b.patient_id')
      .where('b.account_id', staff.account.id)
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
    own.released = new Promise((resolve) => (release = resolve))
    const slow = await own.deliveries.webhook({ endpoint: `${own.receiver.url}/slow`, events: ['lead.created'] })
    const { knex } = own.app.database
    const contact = newContact()
    // At once: the first request is under way already, and has ten seconds for all that follows.
    const leads = await Promise.all(
      Array.from({ length: 20 }, () => own.staff.createEntry({ first_name: 'Zarina', contact: newContact() })),
    )
    await knex('entries').whereIn('id', leads).update({ contact })
    const sent = () => own.receiver.requests.filter(({ path }) => path === '/slow').length
    const queued = async () => (await knex('delivery_queue').where({ webhook_id: slow.id })).length
    await expect.poll(async () => [sent() > 0, await queued()], { timeout: 20_000 }).toEqual([true, 20])
    // The lane has read all that waits.
    await new Promise((resolve) => setTimeout(resolve, 1000))
    const underWay = sent()

    const { erasureId } = done(await own.order({ contact }))
    await expect
      .poll(
        async () =>
          (await knex('lanes').where({ webhook_id: slow.id }).first('settings_changed_at')).settings_changed_at,
      )
      .toBe(null)
    release()
    await expect
      .poll(
        async () => (await stepErasure(own.app, erasureId), knex('erasures').where({ id: erasureId }).first('state')),
        { timeout: 30_000 },
      )
      .toEqual({ state: 'completed' })
    expect(sent()).toBe(underWay)
    const ended = await knex('deliveries').where({ webhook_id: slow.id }).orderBy('status').pluck('status')
    expect(ended.filter((status: string) => status === 'discarded').length).toBe(20 - underWay)
    expect(await own.findings()).toEqual([])
  }, 90_000)

  test('waits for attempts that were under way, and that fail, instead of leaving them to a retry without a body', async () => {
    let release = () => {}
    own.released = new Promise((resolve) => (release = resolve))
    const endpoint = `${own.receiver.url}/slow/down`
    const slow = await own.deliveries.webhook({ endpoint, events: ['lead.created'] })
    const { knex } = own.app.database
    const contact = newContact()
    const leads = await Promise.all(
      Array.from({ length: 4 }, () => own.staff.createEntry({ first_name: 'Zarina', contact: newContact() })),
    )
    await knex('entries').whereIn('id', leads).update({ contact })
    const sent = () => own.receiver.requests.filter(({ path }) => path === '/slow/down').length
    const queued = () => knex('delivery_queue').where({ webhook_id: slow.id })
    await expect.poll(async () => [sent() > 0, (await queued()).length], { timeout: 20_000 }).toEqual([true, 4])
    await new Promise((resolve) => setTimeout(resolve, 500))
    const underWay = sent()

    const { erasureId } = done(await own.order({ contact }))
    const step = async () => {
      await stepErasure(own.app, erasureId)
      return (await knex('erasures').where({ id: erasureId }).first('state')).state
    }
    // What was not begun is discarded; what is under way is waited for.
    await expect.poll(async () => [await step(), (await queued()).length], { timeout: 9000 }).toEqual(['running', underWay]) // prettier-ignore
    release()
    await expect.poll(step, { timeout: 30_000 }).toBe('completed')
    await expect.poll(queued, { timeout: 10_000 }).toEqual([])
    expect(sent()).toBe(underWay)
    const ended = await knex('deliveries').where({ webhook_id: slow.id }).pluck('status')
    expect(ended).toEqual(leads.map(() => 'discarded'))
    expect(await own.findings()).toEqual([])
  }, 90_000)

  test('is for the role admin alone, names somebody, and is seen in its own account only', async () => {
    const { status } = await own.order({ contact: newContact() }, own.staff.staffKey)
    expect(status).toBe(403)
    for (const body of [{}, { name: 'Asha' }, { contact: '123' }, { contact: newContact(), name: ' ' }])
      expect((await own.order(body)).status).toBe(400)
    const unknown = newId(0)
    for (const body of [
      { patientId: unknown },
      { leadIds: [unknown] },
      { preBookingIds: [unknown] },
      { billIds: [unknown] },
    ]) {
      const answer = await own.order(body)
      expect([answer.status, answer.body.error.details]).toEqual([400, expect.stringContaining(unknown)])
    }
    expect((await own.staff.get(`/erasures/${unknown}`, {}, own.staff.adminKey)).status).toBe(404)
    const { erasureId } = done(await own.order({ contact: newContact() }))
    const elsewhere = await openStaffWorld(own.app)
    expect((await elsewhere.get(`/erasures/${erasureId}`, {}, elsewhere.adminKey)).status).toBe(404)
  })

  test('leaves no word of the patient in the audit', async () => {
    const contact = newContact()
    const { erasureId } = done(await own.order({ contact, name: 'Zubeida Khan' }))
    const rows = await own.app.database.knex('audit_entries').where({ operation: 'startErasure' })
    const its = rows.filter(({ targets }) => targets.includes(erasureId))
    expect(its.map(({ targets }) => JSON.parse(targets))).toEqual([{ erasureId }])
  })
})
