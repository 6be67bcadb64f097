import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { Lab } from '../../src/catalogue/labs-repository.ts'
import type { Party } from '../../src/catalogue/parties-repository.ts'
import { newId } from '../../src/ids.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { buildAccount, buildLab, buildParty, subscribeBody, type TestAccount } from '../support/builders.ts'

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

describe('deleting', () => {
  test('ends routing now, raises the epoch and makes the lane due, once', async () => {
    const { _id } = await subscribed(catchAll, subscribeBody(lab))
    const hints = app.hints()
    app.clock.advance(1000)
    const answer = await remove(catchAll, _id, { labID: lab.id })
    expect([answer.status, answer.body]).toEqual([200, { success: true, message: 'Webhook deleted' }])
    const row = await rowOf(_id)
    expect(row).toMatchObject({ state: 'deleted', epoch: 2, updated_at: app.clock.now() })
    expect(row.inactive_from >= row.active_from).toBe(true)
    const lane = await app.database.knex('lanes').where({ webhook_id: _id }).first()
    expect(lane.due_at).toEqual(app.clock.now())
    expect(app.hints()).toBe(hints + 1)
    expect((await remove(catchAll, _id, { labID: lab.id })).status).toBe(404)
    expect((await rowOf(_id)).epoch).toBe(2)
  })

  test('leaves a lane that is due earlier as it is', async () => {
    const { _id } = await subscribed(catchAll, subscribeBody(lab))
    const dueAt = new Date(app.clock.nowMs() - 5000)
    await app.database.knex('lanes').where({ webhook_id: _id }).update({ due_at: dueAt })
    await remove(catchAll, _id, { labID: lab.id })
    expect((await app.database.knex('lanes').where({ webhook_id: _id }).first()).due_at).toEqual(dueAt)
  })

  test('an auto-deleted webhook makes it deleted for good, out of the routing since it was auto-deleted', async () => {
    const { _id } = await subscribed(catchAll, subscribeBody(lab))
    const inactiveFrom = new Date('2026-11-19T00:00:00Z')
    await app.database
      .knex('webhooks')
      .where({ id: _id })
      .update({ state: 'auto_deleted', inactive_from: inactiveFrom })
    expect((await remove(catchAll, _id, { labID: lab.id })).status).toBe(200)
    expect(await rowOf(_id)).toMatchObject({ state: 'deleted', inactive_from: inactiveFrom })
  })

  test('what is unknown, malformed, deleted, or of another lab, party or account is one and the same 404', async () => {
    const otherLab = await subscribed(catchAll, subscribeBody(await buildLab(app, catchAll)))
    const stranger = await buildAccount(app)
    const foreign = await subscribed(stranger, subscribeBody(await buildLab(app, stranger)))
    const own = await subscribed(catchAll, subscribeBody(lab))
    const gone = await subscribed(catchAll, subscribeBody(lab))
    await remove(catchAll, gone._id, { labID: lab.id })
    const ids = [
      newId(0),
      'x',
      '0',
      otherLab._id,
      foreign._id,
      gone._id,
      own._id.toUpperCase(),
      `${own._id}%20`,
      '%00',
      '%ff',
      '%',
      'x'.repeat(5000),
    ]
    const bodies = new Set<string>()
    for (const id of ids) {
      const answer = await remove(catchAll, id, { labID: lab.id })
      expect([id.slice(0, 30), answer.status]).toEqual([id.slice(0, 30), 404])
      bodies.add(JSON.stringify(answer.body.error))
    }
    expect([...bodies]).toEqual(['{"details":"webhook not found","code":"not_found"}'])
    expect(idsOf(await list(catchAll, { labID: lab.id }))).toEqual([own._id])
  })

  test("needs the webhook's own party on a party-scoped account", async () => {
    const { _id } = await subscribed(scoped, subscribeBody(scopedLab, { organization: doctor.id }))
    expect((await remove(scoped, _id, { labID: scopedLab.id, corporateUser: corporate.id })).status).toBe(404)
    expect((await remove(scoped, _id, { labID: scopedLab.id, organization: doctor.id })).status).toBe(200)
  })

  test('does not reach a webhook without a party on a party-scoped account', async () => {
    const switching = await buildAccount(app)
    const switchingLab = await buildLab(app, switching)
    const { _id } = await subscribed(switching, subscribeBody(switchingLab))
    const party = await buildParty(app, switching, 'corporate')
    await app.database.knex('accounts').where({ id: switching.id }).update({ mode: 'party_scoped' })
    app.clock.advance(1000)
    const query = { labID: switchingLab.id, corporateUser: party.id }
    expect((await list(switching, query)).body.data).toEqual([])
    expect((await remove(switching, _id, query)).status).toBe(404)
  })

  test('32 times at once succeeds once', async () => {
    const { _id } = await subscribed(catchAll, subscribeBody(lab))
    const answers = await Promise.all(Array.from({ length: 32 }, () => remove(catchAll, _id, { labID: lab.id })))
    expect(answers.map(({ status }) => status).sort()).toEqual([200, ...Array(31).fill(404)])
    expect((await rowOf(_id)).epoch).toBe(2)
  })
})

test('no attempt of this file was answered with a fault of ours', () => {
  expect(app.logs().filter(({ status }) => Number(status) >= 500)).toEqual([])
})
