/**
 * Proves of the specification:
 * - "auto-deleted | PATCH /client/events/reactivateEvent/{_id} | _id taken from the auto-deleted list | active"
 * - "GET /client/events/getDeactivatedEvents - query labID (string); lists auto-deleted webhooks (each has an _id)."
 * - "PATCH /client/events/reactivateEvent/{_id} - query labID (string); restores an auto-deleted webhook."
 * - "A party may have only one active webhook per event; a duplicate returns 409."
 * - "GET /client/events/getAllEvents - list active webhooks."
 */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { Lab } from '../../src/catalogue/labs-repository.ts'
import type { Party } from '../../src/catalogue/parties-repository.ts'
import { newId } from '../../src/ids.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { autoDelete, buildAccount, buildLab, buildParty, subscribeBody, type TestAccount } from '../support/builders.ts'

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

type Query = Record<string, string | undefined>
const list = (account: TestAccount, query: Query) =>
  app.call('GET', '/client/events/getAllEvents', { token: account.token, query })
const listDeactivated = (account: TestAccount, query: Query) =>
  app.call('GET', '/client/events/getDeactivatedEvents', { token: account.token, query })
const reactivate = (account: TestAccount, id: string, query: Query) =>
  app.call('PATCH', `/client/events/reactivateEvent/${id}`, { token: account.token, query })
const remove = (account: TestAccount, id: string, query: Query) =>
  app.call('DELETE', `/client/events/deleteEvent/${id}`, { token: account.token, query })
const idsOf = (answer: { body: any }) => answer.body.data.map(({ _id }: { _id: string }) => _id)
const rowOf = (id: string) => app.database.knex('webhooks').where({ id }).first()

async function subscribed(account: TestAccount, body: Record<string, unknown>): Promise<any> {
  const answer = await app.call('POST', '/client/events/subscribe', { token: account.token, body })
  expect([answer.status, answer.body.error]).toEqual([200, undefined])
  return answer.body.data
}

/** A webhook that was auto-deleted. */
async function deactivated(account: TestAccount, body: Record<string, unknown>): Promise<any> {
  const webhook = await subscribed(account, body)
  await autoDelete(app, webhook._id)
  return webhook
}

describe('the list of auto-deleted webhooks', () => {
  test('adds to each row when it went, since when it failed, how often, and why', async () => {
    const { secret: _, ...row } = await deactivated(catchAll, subscribeBody(lab))
    const now = app.clock.now().toISOString()
    const { status, body } = await listDeactivated(catchAll, { labID: lab.id })
    expect([status, body]).toEqual([
      200,
      {
        success: true,
        message: 'Auto-deleted webhooks',
        data: [
          {
            ...row,
            updatedAt: now,
            deactivatedAt: now,
            firstFailureAt: new Date(app.clock.nowMs() - 86_400_000).toISOString(),
            failedAttempts: 9,
            lastError: 'HTTP status 503',
          },
        ],
      },
    ])
  })

  test('has the newest first, also of an inactive lab, and no active or deleted ones', async () => {
    const active = await subscribed(catchAll, subscribeBody(lab))
    const deleted = await deactivated(catchAll, subscribeBody(lab))
    await remove(catchAll, deleted._id, { labID: lab.id })
    const ids: string[] = []
    for (let n = 0; n < 3; n++) {
      app.clock.advance(1000)
      ids.unshift((await deactivated(catchAll, subscribeBody(lab)))._id)
    }
    await app.database.knex('labs').where({ id: lab.id }).update({ active: false })
    expect(idsOf(await listDeactivated(catchAll, { labID: lab.id }))).toEqual(ids)
    expect(idsOf(await list(catchAll, { labID: lab.id }))).toEqual([active._id])
  })

  test('of a party-scoped account has every party’s without a party, each row with its own, and one party’s with it', async () => {
    const first = await deactivated(scoped, subscribeBody(scopedLab, { corporateUser: corporate.id }))
    app.clock.advance(1000)
    const second = await deactivated(scoped, subscribeBody(scopedLab, { organization: doctor.id }))
    const { body } = await listDeactivated(scoped, { labID: scopedLab.id })
    expect(body.data).toMatchObject([
      { _id: second._id, organization: doctor.id },
      { _id: first._id, corporateUser: corporate.id },
    ])
    expect(body.data[0]).not.toHaveProperty('corporateUser')
    expect(idsOf(await listDeactivated(scoped, { labID: scopedLab.id, corporateUser: corporate.id }))).toEqual([
      first._id,
    ])
    expect(idsOf(await listDeactivated(scoped, { labID: scopedLab.id, organization: doctor.id }))).toEqual([second._id])
  })

  test('is empty where there are none', async () => {
    expect((await listDeactivated(catchAll, { labID: lab.id })).body.data).toEqual([])
  })
})

describe('reactivating', () => {
  test('makes it active under the same id and secret, with a clean record, a new epoch and its lane due', async () => {
    const { secret: _, ...row } = await deactivated(
      catchAll,
      subscribeBody(lab, { events: ['report.send', 'bill.created'] }),
    )
    const before = await rowOf(row._id)
    const secrets = await app.database.knex('webhook_secrets').where({ webhook_id: row._id })
    await app.database
      .knex('lanes')
      .where({ webhook_id: row._id })
      .update({ eager_until: new Date('9999-01-01T00:00:00Z') })
    app.clock.advance(1000)
    const hints = app.hints()
    const { status, body } = await reactivate(catchAll, row._id, { labID: lab.id })
    expect([status, body]).toEqual([
      200,
      { success: true, message: 'Webhook reactivated', data: { ...row, updatedAt: app.clock.now().toISOString() } },
    ])
    const after = await rowOf(row._id)
    expect(after).toMatchObject({
      state: 'active',
      epoch: before.epoch + 1,
      inactive_from: null,
      first_failure_at: null,
      failed_attempts: 0,
      last_error: null,
      warned_at: null,
      deactivated_at: null,
    })
    expect(after.active_from >= before.inactive_from).toBe(true)
    expect(await app.database.knex('webhook_secrets').where({ webhook_id: row._id })).toEqual(secrets)
    const lane = await app.database.knex('lanes').where({ webhook_id: row._id }).first()
    expect(lane).toMatchObject({ due_at: app.clock.now(), eager_until: null })
    expect(app.hints()).toBe(hints + 1)
    expect(idsOf(await list(catchAll, { labID: lab.id }))).toEqual([row._id])
    expect(idsOf(await listDeactivated(catchAll, { labID: lab.id }))).toEqual([])
  })

  test('is open to an inactive lab, and can be followed by another auto-deletion and reactivation', async () => {
    const { _id } = await deactivated(catchAll, subscribeBody(lab))
    await app.database.knex('labs').where({ id: lab.id }).update({ active: false })
    expect((await reactivate(catchAll, _id, { labID: lab.id })).status).toBe(200)
    await autoDelete(app, _id)
    expect((await reactivate(catchAll, _id, { labID: lab.id })).status).toBe(200)
    expect(await rowOf(_id)).toMatchObject({ state: 'active', epoch: 5 })
  })

  test.each(['without its party', 'with its party'])(
    'works on a party-scoped account %s, and takes its events again',
    async (how) => {
      const party = how === 'with its party' ? { organization: doctor.id } : {}
      const webhook = await deactivated(
        scoped,
        subscribeBody(scopedLab, { organization: doctor.id, events: ['lead.created', 'bill.created'] }),
      )
      const { status, body } = await reactivate(scoped, webhook._id, { labID: scopedLab.id, ...party })
      expect([status, body.data.organization]).toEqual([200, doctor.id])
      const guards = await app.database.knex('webhook_party_guards').where({ webhook_id: webhook._id })
      expect(guards.map(({ event_type, party_id }) => [event_type, party_id]).sort()).toEqual([
        ['bill.created', doctor.id],
        ['lead.created', doctor.id],
      ])
    },
  )

  test('is 409 naming the events that the party’s active webhooks have, and changes nothing', async () => {
    const events = ['lead.created', 'bill.created', 'report.completed']
    const old = await deactivated(scoped, subscribeBody(scopedLab, { corporateUser: corporate.id, events }))
    const taken = { corporateUser: corporate.id, events: ['report.completed', 'lead.created'] }
    const newer = await subscribed(scoped, subscribeBody(scopedLab, taken))
    const before = await rowOf(old._id)
    const answer = await reactivate(scoped, old._id, { labID: scopedLab.id })
    expect([answer.status, answer.body.error]).toEqual([
      409,
      {
        details: 'the party already has an active webhook for lead.created, report.completed; delete that one first',
        code: 'duplicate_webhook',
        fields: [{ field: '_id', message: 'clashes with another webhook on lead.created, report.completed' }],
      },
    ])
    expect(await rowOf(old._id)).toEqual(before)
    expect(await app.database.knex('webhook_party_guards').where({ webhook_id: old._id })).toEqual([])
    await remove(scoped, newer._id, { labID: scopedLab.id, corporateUser: corporate.id })
    expect((await reactivate(scoped, old._id, { labID: scopedLab.id })).status).toBe(200)
  })

  test('without a party is never a clash', async () => {
    const { _id } = await deactivated(catchAll, subscribeBody(lab))
    await subscribed(catchAll, subscribeBody(lab))
    expect((await reactivate(catchAll, _id, { labID: lab.id })).status).toBe(200)
  })

  test('what is active, deleted, unknown, malformed, or of another lab, party or account is one and the same 404', async () => {
    const party = { corporateUser: corporate.id }
    const active = await subscribed(scoped, subscribeBody(scopedLab, { ...party, events: ['bill.deleted'] }))
    const deleted = await deactivated(scoped, subscribeBody(scopedLab, party))
    await remove(scoped, deleted._id, { labID: scopedLab.id, ...party })
    const otherParty = await deactivated(scoped, subscribeBody(scopedLab, { organization: doctor.id }))
    const otherLab = await deactivated(scoped, subscribeBody(await buildLab(app, scoped), party))
    const foreign = await deactivated(catchAll, subscribeBody(lab))
    const own = await deactivated(scoped, subscribeBody(scopedLab, party))
    const ids = [active, deleted, otherParty, otherLab, foreign].map(({ _id }) => _id)
    const malformed = [newId(0), 'x', '0', own._id.toUpperCase(), `${own._id}%20`, '%00', 'x'.repeat(5000)]
    const errors = new Set<string>()
    for (const id of [...ids, ...malformed]) {
      const answer = await reactivate(scoped, id, { labID: scopedLab.id, ...party })
      expect([id.slice(0, 30), answer.status]).toEqual([id.slice(0, 30), 404])
      errors.add(JSON.stringify(answer.body.error))
    }
    expect([...errors]).toEqual(['{"details":"auto-deleted webhook not found","code":"not_found"}'])
    expect(await rowOf(foreign._id)).toMatchObject({ state: 'auto_deleted' })
    expect(await rowOf(otherParty._id)).toMatchObject({ state: 'auto_deleted' })
  })

  test('32 times at once succeeds once', async () => {
    const { _id } = await deactivated(scoped, subscribeBody(scopedLab, { corporateUser: corporate.id }))
    const answers = await Promise.all(
      Array.from({ length: 32 }, () => reactivate(scoped, _id, { labID: scopedLab.id })),
    )
    expect(answers.map(({ status }) => status).sort()).toEqual([200, ...Array(31).fill(404)])
    expect((await rowOf(_id)).epoch).toBe(3)
  })
})

describe.each([
  ['the list of auto-deleted webhooks', (account: TestAccount, query: Query) => listDeactivated(account, query)],
  ['reactivating', (account: TestAccount, query: Query) => reactivate(account, newId(0), query)],
])('%s', (_, call) => {
  test('is 400 for a party on a catch-all account, naming the field', async () => {
    for (const field of ['corporateUser', 'organization']) {
      const answer = await call(catchAll, { labID: lab.id, [field]: corporate.id })
      expect([answer.status, answer.body.error]).toEqual([
        400,
        {
          details: 'a catch-all account must not send corporateUser or organization',
          code: 'party_not_allowed',
          fields: [{ field, message: 'must not be sent' }],
        },
      ])
    }
  })

  test('is 400 for both parties at once, naming both fields', async () => {
    const both = { corporateUser: corporate.id, organization: doctor.id }
    const answer = await call(scoped, { labID: scopedLab.id, ...both })
    expect([answer.status, answer.body.error.code]).toEqual([400, 'party_ambiguous'])
    expect(answer.body.error.fields.map(({ field }: { field: string }) => field)).toEqual(Object.keys(both))
  })

  test('is 400 for a party that the account does not have, and for a missing labID', async () => {
    const foreign = await buildParty(app, catchAll, 'corporate')
    for (const id of [foreign.id, doctor.id, newId(0), 'x']) {
      const answer = await call(scoped, { labID: scopedLab.id, corporateUser: id })
      expect([answer.status, answer.body.error.details]).toEqual([400, `unknown corporateUser ${id}`])
    }
    const missing = await call(scoped, {})
    expect([missing.status, missing.body.error.fields[0].field]).toEqual([400, 'labID'])
  })

  test('is 403 for a lab that is unknown or of another account', async () => {
    for (const labID of [lab.id, newId(0), 'x']) {
      const answer = await call(scoped, { labID })
      expect([answer.status, answer.body.error.details]).toEqual([403, 'labID does not belong to the account'])
    }
  })

  test('is 401 without a token', async () => {
    expect((await call({ ...scoped, token: 'x' }, { labID: scopedLab.id })).status).toBe(401)
  })
})

test('a webhook without a party on a party-scoped account is neither listed nor reactivated', async () => {
  const switching = await buildAccount(app)
  const switchingLab = await buildLab(app, switching)
  const { _id } = await deactivated(switching, subscribeBody(switchingLab))
  const party = await buildParty(app, switching, 'corporate')
  await app.database.knex('accounts').where({ id: switching.id }).update({ mode: 'party_scoped' })
  app.clock.advance(1000)
  for (const query of [{ labID: switchingLab.id }, { labID: switchingLab.id, corporateUser: party.id }]) {
    expect((await listDeactivated(switching, query)).body.data).toEqual([])
    expect((await reactivate(switching, _id, query)).status).toBe(404)
  }
})

test('no call of this file was answered with a fault of ours', () => {
  expect(app.logs().filter(({ status }) => Number(status) >= 500)).toEqual([])
})
