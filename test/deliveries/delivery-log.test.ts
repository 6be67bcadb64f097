import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { Lab } from '../../src/catalogue/labs-repository.ts'
import type { Party } from '../../src/catalogue/parties-repository.ts'
import { newId, publicEventId } from '../../src/ids.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import {
  autoDelete,
  buildAccount,
  buildLab,
  buildOperatorKey,
  buildParty,
  subscribeBody,
  type TestAccount,
} from '../support/builders.ts'
import { buildAttempt, buildEnded, buildEvent, buildPending } from '../support/logged-deliveries.ts'

const MINUTE_MS = 60_000

let app: TestApp
let account: TestAccount
let scoped: TestAccount
let operatorKey: string
let corporate: Party
let lab: Lab
let scopedLab: Lab

beforeAll(async () => {
  app = await startTestApp()
  account = await buildAccount(app)
  scoped = await buildAccount(app, { mode: 'party_scoped' })
  corporate = await buildParty(app, scoped, 'corporate')
  operatorKey = await buildOperatorKey(app)
})
afterAll(() => app.close())
beforeEach(async () => {
  lab = await buildLab(app, account)
  scopedLab = await buildLab(app, scoped)
})

const knex = () => app.database.knex
const atMs = (minutes: number) => app.clock.nowMs() - 600 * MINUTE_MS + minutes * MINUTE_MS
const eventAt = (minutes: number, type?: 'lead.created' | 'bill.created') =>
  buildEvent(app.database, { accountId: account.id, labId: lab.id, atMs: atMs(minutes), ...(type ? { type } : {}) })

async function subscribed(owner: TestAccount, body: Record<string, unknown>): Promise<string> {
  const answer = await app.call('POST', '/client/events/subscribe', { token: owner.token, body })
  expect(answer.status).toBe(200)
  return answer.body.data._id
}
const list = (query: Record<string, string | undefined>, owner = account) =>
  app.call('GET', '/client/events/deliveries', { token: owner.token, query: { labID: lab.id, ...query } })
const rowsOf = (answer: { body: any }) => answer.body.data.map((row: any) => [row.eventId, row.webhookId, row.status])
const show = (webhookId: string, eventId: string, query = {}) =>
  app.call('GET', `/client/events/deliveries/${webhookId}/${publicEventId(eventId)}`, {
    token: account.token,
    query: { labID: lab.id, ...query },
  })

describe('the list of deliveries', () => {
  test('merges what is pending and what has ended, newest event first', async () => {
    const webhook = await subscribed(account, subscribeBody(lab))
    const [delivered, pending, exhausted, discarded] = [
      await eventAt(1),
      await eventAt(2),
      await eventAt(3),
      await eventAt(4),
    ]
    await buildEnded(knex(), webhook, delivered, 'delivered', 2)
    await buildPending(knex(), webhook, pending, { attempts: 1, dueAt: new Date(atMs(30)) })
    await buildEnded(knex(), webhook, exhausted, 'exhausted', 9)
    await buildEnded(knex(), webhook, discarded, 'discarded', 0)
    const { status, body } = await list({})
    expect([status, body.nextCursor]).toEqual([200, null])
    expect(rowsOf({ body })).toEqual([
      [publicEventId(discarded), webhook, 'discarded'],
      [publicEventId(exhausted), webhook, 'exhausted'],
      [publicEventId(pending), webhook, 'pending'],
      [publicEventId(delivered), webhook, 'delivered'],
    ])
    expect(body.data[2]).toMatchObject({ attempts: 1, nextAttemptAt: new Date(atMs(30)).toISOString() })
    expect(body.data[3]).toMatchObject({ attempts: 2, endedAt: new Date(atMs(1) + 1000).toISOString() })
    expect(rowsOf(await list({ webhookId: webhook }))).toEqual(rowsOf({ body }))
  })

  test('is filtered by status, event name and time of the event', async () => {
    const webhook = await subscribed(account, subscribeBody(lab, { events: ['lead.created', 'bill.created'] }))
    const [lead, bill, late] = [await eventAt(1), await eventAt(2, 'bill.created'), await eventAt(3)]
    await buildEnded(knex(), webhook, lead, 'delivered')
    await buildEnded(knex(), webhook, bill, 'exhausted', 9)
    await buildPending(knex(), webhook, late)
    const found = async (query: Record<string, string>) => rowsOf(await list(query)).map(([id]: [string]) => id)
    expect(await found({ status: 'exhausted' })).toEqual([publicEventId(bill)])
    expect(await found({ status: 'pending' })).toEqual([publicEventId(late)])
    expect(await found({ type: 'bill.created' })).toEqual([publicEventId(bill)])
    expect(await found({ type: 'lead.created', status: 'delivered' })).toEqual([publicEventId(lead)])
    const secondMinute = new Date(atMs(2)).toISOString()
    expect(await found({ from: secondMinute })).toEqual([publicEventId(late), publicEventId(bill)])
    expect(await found({ to: secondMinute })).toEqual([publicEventId(lead)])
    // The server writes its rows a moment after their ids were made; the times that are shown are those that one can ask for.
    await knex()('events')
      .where({ id: bill })
      .update({ recorded_at: new Date(atMs(2) + 20) })
    const shown = (await list({ status: 'exhausted' })).body.data[0].recordedAt
    expect(await found({ from: shown })).toEqual([publicEventId(late), publicEventId(bill)])
    expect(await found({ to: shown })).toEqual([publicEventId(lead)])
  })

  test('shows what waited when its webhook went as discarded already', async () => {
    const webhook = await subscribed(account, subscribeBody(lab))
    const event = await eventAt(1)
    await buildPending(knex(), webhook, event, { attempts: 3 })
    await autoDelete(app, webhook)
    expect(rowsOf(await list({}))).toEqual([[publicEventId(event), webhook, 'discarded']])
    expect(rowsOf(await list({ status: 'pending' }))).toEqual([])
    expect(rowsOf(await list({ status: 'discarded' }))).toEqual([[publicEventId(event), webhook, 'discarded']])
    expect((await show(webhook, event)).body.data).toMatchObject({ status: 'discarded', attempts: 3 })
  })

  test('shows one that is sent again as pending, and only as that', async () => {
    const webhook = await subscribed(account, subscribeBody(lab))
    const event = await eventAt(1)
    await buildEnded(knex(), webhook, event, 'exhausted', 9)
    await buildPending(knex(), webhook, event, { attempts: 9 })
    expect(rowsOf(await list({}))).toEqual([[publicEventId(event), webhook, 'pending']])
    expect(rowsOf(await list({ status: 'exhausted' }))).toEqual([])
  })

  test('keeps the log of a deleted webhook', async () => {
    const webhook = await subscribed(account, subscribeBody(lab))
    const event = await eventAt(1)
    await buildEnded(knex(), webhook, event, 'delivered')
    const deleted = await app.call('DELETE', `/client/events/deleteEvent/${webhook}`, {
      token: account.token,
      query: { labID: lab.id },
    })
    expect(deleted.status).toBe(200)
    expect(rowsOf(await list({ webhookId: webhook }))).toEqual([[publicEventId(event), webhook, 'delivered']])
  })

  test('refuses a cursor of another list, an unknown status and a time that is none with 400', async () => {
    for (const query of [
      { cursor: 'x' },
      { cursor: Buffer.from('["é","x"]').toString('base64url') },
      { status: 'lost' },
      { type: 'lead.deleted' },
      { from: 'yesterday' },
      { from: '2026-02-31T00:00:00Z' },
      { limit: '0' },
      { limit: '101' },
    ]) {
      expect([query, (await list(query)).status]).toEqual([query, 400])
    }
  })

  test('says of a time whose + has become a space that this may be it', async () => {
    const { body } = await list({ from: '2026-11-20T00:00:00 05:30' })
    expect(body.error.details).toBe(
      'from must be an existing date and time such as 2026-11-20T10:15:00Z; in a query its + is written %2B',
    )
    expect((await list({ from: '2026-11-20T00:00:00+05:30' })).status).toBe(200)
  })

  test('of a party-scoped account is one party’s, who must be named', async () => {
    const other = await buildParty(app, scoped, 'corporate')
    const body = (party: Party) => subscribeBody(scopedLab, { corporateUser: party.id })
    const [own, foreign] = [await subscribed(scoped, body(corporate)), await subscribed(scoped, body(other))]
    const event = await buildEvent(app.database, { accountId: scoped.id, labId: scopedLab.id, atMs: atMs(1) })
    for (const webhook of [own, foreign]) await buildEnded(knex(), webhook, event, 'delivered')
    const query = { labID: scopedLab.id, corporateUser: corporate.id }
    expect(rowsOf(await list(query, scoped))).toEqual([[publicEventId(event), own, 'delivered']])
    expect((await list({ ...query, webhookId: foreign }, scoped)).status).toBe(404)
    expect((await list({ labID: scopedLab.id }, scoped)).status).toBe(400)
    expect((await list({ labID: scopedLab.id })).status).toBe(403)
    expect((await list({ webhookId: own })).status).toBe(404)
    const path = `/client/events/deliveries/${foreign}/${publicEventId(event)}`
    expect((await app.call('GET', path, { token: scoped.token, query })).status).toBe(404)
  })
})

describe('one delivery', () => {
  test('has its attempts in order, what was answered, and the exact body', async () => {
    const webhook = await subscribed(account, subscribeBody(lab))
    const event = await eventAt(1)
    await buildEnded(knex(), webhook, event, 'delivered', 2)
    await buildAttempt(knex(), webhook, event, 2)
    await buildAttempt(knex(), webhook, event, 1, {
      class: 'http_status',
      status: 503,
      error: 'HTTP status 503',
      answer: Buffer.from('restarting'),
    })
    const { status, body } = await show(webhook, event)
    expect(status).toBe(200)
    expect(body.data).toMatchObject({
      status: 'delivered',
      attemptLog: [
        { attempt: 1, class: 'http_status', status: 503, error: 'HTTP status 503', answer: 'restarting' },
        { attempt: 2, class: 'ok', status: 204 },
      ],
      body: JSON.stringify({ id: publicEventId(event) }),
    })
  })

  test('outlives its body', async () => {
    const webhook = await subscribed(account, subscribeBody(lab))
    const event = await eventAt(1)
    await buildEnded(knex(), webhook, event, 'delivered')
    await knex()('event_bodies').where({ event_id: event }).delete()
    expect((await show(webhook, event)).body.data.body).toBeNull()
  })

  test('that there is not, or under an id that is none, is 404', async () => {
    const webhook = await subscribed(account, subscribeBody(lab))
    const event = await eventAt(1)
    expect((await show(webhook, event)).status).toBe(404)
    expect((await show(newId(1), event)).status).toBe(404)
    const path = `/client/events/deliveries/${webhook}/${event}`
    expect((await app.call('GET', path, { token: account.token, query: { labID: lab.id } })).status).toBe(404)
  })
})

describe('the operator’s list', () => {
  const listAsOperator = (query: Record<string, string>, key = operatorKey) =>
    app.call('GET', `/operator/accounts/${account.id}/deliveries`, { token: key, query })

  test('has a lab’s or a webhook’s deliveries, and takes no key of another account', async () => {
    const webhook = await subscribed(account, subscribeBody(lab))
    const event = await eventAt(1)
    await buildEnded(knex(), webhook, event, 'exhausted', 9)
    const row = { eventId: publicEventId(event), webhookId: webhook, status: 'exhausted' }
    expect((await listAsOperator({ labID: lab.id })).body.deliveries).toMatchObject([row])
    expect((await listAsOperator({ webhookId: webhook })).body.deliveries).toMatchObject([row])
    expect((await listAsOperator({})).status).toBe(400)
    expect((await listAsOperator({ labID: scopedLab.id })).status).toBe(404)
    const foreignKey = await buildOperatorKey(app, { role: 'staff', accountId: scoped.id })
    expect((await listAsOperator({ labID: lab.id }, foreignKey)).status).toBe(404)
    const path = `/operator/accounts/${account.id}/deliveries/${webhook}/${publicEventId(event)}`
    expect((await app.call('GET', path, { token: operatorKey })).body).toMatchObject({ ...row, attemptLog: [] })
  })
})
