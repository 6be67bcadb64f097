import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { Lab } from '../../src/catalogue/labs-repository.ts'
import type { Party } from '../../src/catalogue/parties-repository.ts'
import { unseal } from '../../src/crypto.ts'
import { EVENT_TYPES } from '../../src/events/event-types.ts'
import { newId } from '../../src/ids.ts'
import { getDeliverySettings } from '../../src/webhooks/delivery-settings-repository.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { buildAccount, buildLab, buildParty, subscribeBody, type TestAccount } from '../support/builders.ts'
import { secretOfKey } from '../support/secret-of-key.ts'

let app: TestApp
let catchAll: TestAccount
let scoped: TestAccount
let lab: Lab
let scopedLab: Lab
let corporate: Party
let doctor: Party

beforeAll(async () => {
  app = await startTestApp()
  catchAll = await buildAccount(app)
  scoped = await buildAccount(app, { mode: 'party_scoped' })
  corporate = await buildParty(app, scoped, 'corporate')
  doctor = await buildParty(app, scoped, 'doctor')
})
afterAll(() => app.close())
beforeEach(async () => {
  lab = await buildLab(app, catchAll)
  scopedLab = await buildLab(app, scoped)
})

const subscribe = (account: TestAccount, body: Record<string, unknown>) =>
  app.call('POST', '/client/events/subscribe', { token: account.token, body })
const list = (account: TestAccount, query: Record<string, string | undefined>) =>
  app.call('GET', '/client/events/getAllEvents', { token: account.token, query })
const remove = (account: TestAccount, id: string, query: Record<string, string | undefined>) =>
  app.call('DELETE', `/client/events/deleteEvent/${id}`, { token: account.token, query })
const idsOf = (answer: { body: any }) => answer.body.data.map(({ _id }: { _id: string }) => _id)
const rowOf = (id: string) => app.database.knex('webhooks').where({ id }).first()

async function subscribed(account: TestAccount, body: Record<string, unknown>): Promise<any> {
  const answer = await subscribe(account, body)
  expect([answer.status, answer.body.error]).toEqual([200, undefined])
  return answer.body.data
}

describe('subscribing', () => {
  test('answers success, a message, the row and its secret, and the webhook is active with its lane', async () => {
    const { status, body } = await subscribe(catchAll, subscribeBody(lab, { events: ['report.send', 'bill.created'] }))
    const now = app.clock.now().toISOString()
    expect(status).toBe(200)
    expect(body).toEqual({
      success: true,
      message: 'Webhook registered',
      data: {
        _id: body.data._id,
        events: ['report.send', 'bill.created'],
        endpoint: 'https://lims.example.in/hooks/lab',
        protocol: 'https',
        createdAt: now,
        updatedAt: now,
        secret: expect.stringMatching(/^whsec_[A-Za-z0-9+/]{43}=$/),
      },
    })
    const row = await rowOf(body.data._id)
    expect(row).toMatchObject({
      state: 'active',
      epoch: 1,
      corporate_id: null,
      organization_id: null,
      inactive_from: null,
    })
    const lane = await app.database.knex('lanes').where({ webhook_id: body.data._id }).first()
    expect(lane).toMatchObject({ due_at: null, owner: null })
  })

  test('stores the secret sealed for this webhook, such that deliveries are signed with it', async () => {
    const { _id, secret } = await subscribed(catchAll, subscribeBody(lab))
    const { sealed } = await app.database.knex('webhook_secrets').where({ webhook_id: _id }).first()
    expect(sealed.toString('latin1')).not.toContain(secret.slice(6, 20))
    expect(() => unseal(app.keys, sealed, newId(0))).toThrow()
    const { signingKeys } = await getDeliverySettings(app.database.knex, app.keys, _id, app.clock.now())
    expect(signingKeys.map(({ key }) => secretOfKey(key))).toEqual([secret])
  })

  test('takes every event of the specification and merges names given twice', async () => {
    const { events } = await subscribed(catchAll, subscribeBody(lab, { events: [...EVENT_TYPES, ...EVENT_TYPES] }))
    expect(events).toEqual([...EVENT_TYPES])
  })

  test('takes the name of the scheme in capital letters, and shows the endpoint as it was sent', async () => {
    const { endpoint } = await subscribed(catchAll, subscribeBody(lab, { endpoint: 'HTTPS://lims.example.in/hooks' }))
    expect(endpoint).toBe('HTTPS://lims.example.in/hooks')
  })

  test("takes active_from from the database's own clock", async () => {
    const { _id } = await subscribed(catchAll, subscribeBody(lab))
    const [rows] = await app.database.knex.raw(
      'SELECT ABS(TIMESTAMPDIFF(SECOND, active_from, UTC_TIMESTAMP(6))) AS seconds FROM webhooks WHERE id = ?',
      [_id],
    )
    expect(Number(rows[0].seconds)).toBeLessThan(60)
  })

  test.each([
    ['events.1', { events: ['lead.created', 'bill.paid'] }, 'bill.paid'],
    ['events', { events: [] }, 'must not be empty'],
    ['events', { events: 'lead.created' }, 'must be an array'],
    ['events', { events: undefined }, 'is required'],
    ['protocol', { protocol: 'http' }, 'not http'],
    ['protocol', { protocol: undefined }, 'is required'],
    ['endpoint', { endpoint: 'http://lims.example.in/hooks' }, 'https://, not http://lims.example.in/hooks'],
    ['endpoint', { endpoint: `https://lims.example.in/${'x'.repeat(2048)}` }, '2048'],
    ['endpoint', { endpoint: 'https://user:secret@lims.example.in/' }, 'password'],
    ['endpoint', { endpoint: 'https://lims.example.in/#x' }, 'fragment'],
    ['endpoint', { endpoint: 'https://lims.example.in:22/' }, 'port'],
    ['endpoint', { endpoint: 'https://127.1/' }, 'public'],
    ['endpoint', { endpoint: 'https://[::1]/' }, 'public'],
    ['endpoint', { endpoint: 'https://localhost/' }, 'public'],
    ['labID', { labID: undefined }, 'is required'],
  ])('is 400 naming %s for %j', async (field, fields, words) => {
    const answer = await subscribe(catchAll, subscribeBody(lab, fields))
    expect([answer.status, answer.body.error.fields[0].field]).toEqual([400, field])
    expect(answer.body.error.details).toContain(words)
    expect(idsOf(await list(catchAll, { labID: lab.id }))).toEqual([])
  })

  test('is 403 for a lab that is unknown, inactive or of another account', async () => {
    const inactive = await buildLab(app, catchAll, { active: false })
    for (const labID of [scopedLab.id, inactive.id, newId(0), 'x', '']) {
      const answer = await subscribe(catchAll, subscribeBody(lab, { labID }))
      expect([answer.status, answer.body.error.details]).toEqual([403, 'labID does not belong to the account'])
    }
  })

  test('beside a party’s, from before the account gave up its parties, is warned of what that one gets as well', async () => {
    const changed = await buildAccount(app, { mode: 'party_scoped' })
    const events = ['lead.created', 'bill.send']
    const ofChanged = await buildLab(app, changed)
    const { id: corporateUser } = await buildParty(app, changed, 'corporate')
    await subscribed(changed, subscribeBody(ofChanged, { events, corporateUser }))
    await app.database.knex('accounts').where({ id: changed.id }).update({ mode: 'catch_all' })
    app.clock.advance(1000)
    const { warnings } = await subscribed(changed, subscribeBody(ofChanged, { events }))
    expect(warnings).toEqual([
      'lead.created is also delivered to another active webhook of this lab, where it is of its party',
    ])
  })

  test('again without a party is accepted and warned of', async () => {
    await subscribed(catchAll, subscribeBody(lab, { events: ['lead.created', 'booking.created'] }))
    await subscribed(catchAll, subscribeBody(lab, { events: ['lead.created'] }))
    const third = await subscribed(
      catchAll,
      subscribeBody(lab, { events: ['booking.created', 'lead.created', 'bill.send'] }),
    )
    expect(third.warnings).toEqual([
      'booking.created is also delivered to another active webhook of this lab',
      'lead.created is also delivered to 2 other active webhooks of this lab',
    ])
    const elsewhere = await subscribed(catchAll, subscribeBody(await buildLab(app, catchAll)))
    expect(elsewhere).not.toHaveProperty('warnings')
  })

  test('64 times at once without a party is accepted 64 times', async () => {
    const answers = await Promise.all(Array.from({ length: 64 }, () => subscribe(catchAll, subscribeBody(lab))))
    expect(answers.map(({ status }) => status)).toEqual(Array(64).fill(200))
    expect((await list(catchAll, { labID: lab.id })).body.data).toHaveLength(64)
  })
})

describe('the party rule', () => {
  const calls: [
    string,
    (account: TestAccount, party: Record<string, string>) => Promise<{ status: number; body: any }>,
  ][] = [
    ['subscribe', (account, party) => subscribe(account, subscribeBody(account === scoped ? scopedLab : lab, party))],
    ['list', (account, party) => list(account, { labID: (account === scoped ? scopedLab : lab).id, ...party })],
    [
      'delete',
      (account, party) => remove(account, newId(0), { labID: (account === scoped ? scopedLab : lab).id, ...party }),
    ],
  ]

  test.each(calls)('%s: a catch-all account sends none', async (_, call) => {
    for (const party of [{ corporateUser: corporate.id }, { organization: doctor.id }] as Record<string, string>[]) {
      const answer = await call(catchAll, party)
      expect([answer.status, answer.body.error.code]).toEqual([400, 'party_not_allowed'])
    }
  })

  test.each(calls)('%s: a party-scoped account sends exactly one', async (name, call) => {
    expect((await call(scoped, {})).body.error.code).toBe('party_required')
    const both = await call(scoped, { corporateUser: corporate.id, organization: doctor.id })
    expect([both.status, both.body.error.code]).toEqual([400, 'party_ambiguous'])
    const right = await call(scoped, { organization: doctor.id })
    expect(right.status).toBe(name === 'delete' ? 404 : 200)
  })

  test.each(calls)('%s: a party that the account does not have, or of another kind, is named', async (_, call) => {
    const foreign = await buildParty(app, catchAll, 'corporate')
    for (const id of [foreign.id, doctor.id, newId(0), `${corporate.id} `]) {
      const answer = await call(scoped, { corporateUser: id })
      expect([answer.status, answer.body.error.details]).toEqual([400, `unknown corporateUser ${id}`])
    }
  })
})

describe('one active webhook for a party and an event', () => {
  const body = (events: string[], party: object) => subscribeBody(scopedLab, { events, ...party })

  test('a clash on one of several events is 409 naming it, and nothing is stored', async () => {
    await subscribed(scoped, body(['lead.created', 'bill.created'], { corporateUser: corporate.id }))
    const answer = await subscribe(
      scoped,
      body(['bill.created', 'bill.deleted', 'lead.created'], { corporateUser: corporate.id }),
    )
    expect([answer.status, answer.body.error.details]).toEqual([
      409,
      'the party already has an active webhook for bill.created, lead.created',
    ])
    expect(await app.database.knex('webhooks').where({ lab_id: scopedLab.id })).toHaveLength(1)
    await subscribed(scoped, body(['bill.deleted'], { corporateUser: corporate.id }))
  })

  test('does not concern another party, another lab, or a webhook that was deleted', async () => {
    const first = await subscribed(scoped, body(['lead.created'], { corporateUser: corporate.id }))
    expect(first).not.toHaveProperty('organization')
    await subscribed(scoped, body(['lead.created'], { organization: doctor.id }))
    const elsewhere = await buildLab(app, scoped)
    await subscribed(scoped, { ...body(['lead.created'], { corporateUser: corporate.id }), labID: elsewhere.id })
    await remove(scoped, first._id, { labID: scopedLab.id, corporateUser: corporate.id })
    await subscribed(scoped, body(['lead.created'], { corporateUser: corporate.id }))
  })

  test('holds when 64 overlapping calls come at once: one wins, none is a fault of ours', async () => {
    const sets = [
      ['lead.created', 'booking.created'],
      ['booking.created', 'lead.created', 'bill.created'],
      ['bill.created', 'booking.created'],
    ]
    const answers = await Promise.all(
      Array.from({ length: 64 }, (_, n) => subscribe(scoped, body(sets[n % 3]!, { organization: doctor.id }))),
    )
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1)
    expect(answers.filter(({ status }) => status === 409)).toHaveLength(63)
    const active = (await list(scoped, { labID: scopedLab.id, organization: doctor.id })).body.data
    expect(active).toHaveLength(1)
    expect(await app.database.knex('webhook_party_guards').where({ lab_id: scopedLab.id })).toHaveLength(
      active[0].events.length,
    )
  })

  test('holds while webhooks are deleted and registered again at once', async () => {
    const query = { labID: scopedLab.id, corporateUser: corporate.id }
    const turn = async () => {
      const answer = await subscribe(scoped, body(['lead.created', 'booking.created'], { corporateUser: corporate.id }))
      if (answer.status === 200) await remove(scoped, answer.body.data._id, query)
      return answer.status
    }
    const statuses = await Promise.all(Array.from({ length: 48 }, turn))
    expect(statuses.every((status) => status === 200 || status === 409)).toBe(true)
    expect((await list(scoped, query)).body.data).toEqual([])
    expect(await app.database.knex('webhook_party_guards').where({ lab_id: scopedLab.id })).toEqual([])
  })
})

describe('listing', () => {
  test('shows the active webhooks of the lab as they were sent, without secrets', async () => {
    const { secret: _, ...row } = await subscribed(
      catchAll,
      subscribeBody(lab, { events: ['report.send', 'bill.created'] }),
    )
    const { body } = await list(catchAll, { labID: lab.id })
    expect(body).toEqual({ success: true, message: 'Active webhooks', data: [row] })
  })

  test("shows a party its own only, and never another account's", async () => {
    const own = await subscribed(scoped, subscribeBody(scopedLab, { organization: doctor.id }))
    const other = await subscribed(scoped, subscribeBody(scopedLab, { corporateUser: corporate.id }))
    expect(idsOf(await list(scoped, { labID: scopedLab.id, organization: doctor.id }))).toEqual([own._id])
    expect(idsOf(await list(scoped, { labID: scopedLab.id, corporateUser: corporate.id }))).toEqual([other._id])
    expect((await list(catchAll, { labID: scopedLab.id })).status).toBe(403)
  })

  test('leaves out auto-deleted and deleted ones, and serves an inactive lab', async () => {
    const [kept, autoDeleted, deleted] = [
      await subscribed(catchAll, subscribeBody(lab)),
      await subscribed(catchAll, subscribeBody(lab)),
      await subscribed(catchAll, subscribeBody(lab)),
    ]
    await app.database.knex('webhooks').where({ id: autoDeleted._id }).update({ state: 'auto_deleted' })
    await remove(catchAll, deleted._id, { labID: lab.id })
    await app.database.knex('labs').where({ id: lab.id }).update({ active: false })
    expect(idsOf(await list(catchAll, { labID: lab.id }))).toEqual([kept._id])
    expect((await remove(catchAll, kept._id, { labID: lab.id })).status).toBe(200)
  })
})

test('no attempt of this file was answered with a fault of ours', () => {
  expect(app.logs().filter(({ status }) => Number(status) >= 500)).toEqual([])
})
