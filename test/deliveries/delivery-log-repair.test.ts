import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { Lab } from '../../src/catalogue/labs-repository.ts'
import { newId, publicEventId, timeOfId } from '../../src/ids.ts'
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
import { buildEnded, buildEvent, buildMessage, buildPending } from '../support/logged-deliveries.ts'

const HOUR_MS = 3_600_000

let app: TestApp
let account: TestAccount
let other: TestAccount
let staffKey: string
let lab: Lab
let webhook: string

beforeAll(async () => {
  app = await startTestApp()
  // Events are recorded by the database's clock, which is the real one.
  app.clock.set(new Date(await app.database.readTimeMs()).toISOString())
  account = await buildAccount(app)
  other = await buildAccount(app)
  staffKey = await buildOperatorKey(app, { role: 'staff' })
})
afterAll(() => app.close())
beforeEach(async () => {
  lab = await buildLab(app, account)
  const answer = await call('POST', '/client/events/subscribe', { body: subscribeBody(lab) })
  webhook = answer.body.data._id
})

const knex = () => app.database.knex
const call = (method: string, path: string, options: object = {}) =>
  app.call(method, path, { token: account.token, query: { labID: lab.id }, ...options })
const asStaff = (method: string, path: string, options: object = {}) =>
  app.call(method, `/operator/accounts/${account.id}${path}`, { token: staffKey, ...options })
const eventAgo = (hours: number) =>
  buildEvent(app.database, { accountId: account.id, labId: lab.id, atMs: app.clock.nowMs() - hours * HOUR_MS })
const since = (hours: number) => new Date(app.clock.nowMs() - hours * HOUR_MS).toISOString()
const pathOf = (event: string) => `/deliveries/${webhook}/${publicEventId(event)}`
const audited = (operation: string) => knex()('audit_entries').where({ operation, account_id: account.id }).first()

describe('sending one delivery again', () => {
  test('makes it pending and due now, and tells the daemons', async () => {
    const event = await eventAgo(1)
    await buildEnded(knex(), webhook, event, 'exhausted', 9)
    const hints = app.hints()
    const { status, body } = await call('POST', `/client/events${pathOf(event)}/redeliver`)
    expect(status).toBe(200)
    expect(body.data).toMatchObject({ status: 'pending', attempts: 9, nextAttemptAt: app.clock.now().toISOString() })
    expect(app.hints()).toBe(hints + 1)
    expect((await knex()('lanes').where({ webhook_id: webhook }).first()).due_at).toEqual(app.clock.now())
    const again = await call('POST', `/client/events${pathOf(event)}/redeliver`, { body: {} })
    expect([again.status, again.body.error.code]).toEqual([409, 'invalid_state'])
  })

  test('by staff is audited, and only where it is done', async () => {
    const event = await eventAgo(1)
    expect((await asStaff('POST', `${pathOf(event)}/redeliver`)).status).toBe(404)
    expect(await audited('redeliverAccountDelivery')).toBeUndefined()
    await buildEnded(knex(), webhook, event, 'discarded')
    expect((await asStaff('POST', `${pathOf(event)}/redeliver`)).status).toBe(200)
    const { targets } = await audited('redeliverAccountDelivery')
    expect(JSON.parse(targets)).toEqual({ webhookId: webhook, eventId: publicEventId(event) })
  })

  test('of another account’s webhook is the 404 of one that does not exist', async () => {
    const event = await eventAgo(1)
    await buildEnded(knex(), webhook, event, 'discarded')
    const path = `/client/events${pathOf(event)}/redeliver`
    const ownLab = await buildLab(app, other)
    const answer = await app.call('POST', path, { token: other.token, query: { labID: ownLab.id } })
    expect(answer.status).toBe(404)
    expect(await knex()('delivery_queue').where({ event_id: event })).toEqual([])
  })
})

describe('a recovery', () => {
  test('is ordered, shown with its progress, and runs once at a time', async () => {
    const body = { webhookId: webhook, since: since(48) }
    const started = await call('POST', '/client/events/recoveries', { body })
    expect(started.status).toBe(200)
    expect(started.body.data).toMatchObject({ webhookId: webhook, state: 'running', progress: 0, requeued: 0 })
    const path = `/client/events/recoveries/${started.body.data.recoveryId}`
    expect((await call('GET', path)).body.data).toEqual(started.body.data)
    expect((await call('POST', '/client/events/recoveries', { body })).body.error.code).toBe('recovery_running')
    const elsewhere = await buildLab(app, account)
    expect((await call('GET', path, { query: { labID: elsewhere.id } })).status).toBe(404)
    const foreignLab = await buildLab(app, other)
    expect((await app.call('GET', path, { token: other.token, query: { labID: foreignLab.id } })).status).toBe(404)
    expect((await asStaff('GET', `/recoveries/${started.body.data.recoveryId}`)).body.state).toBe('running')
  })

  test('reaches back 14 days and no further, and takes an active webhook only', async () => {
    const order = (body: object) => call('POST', '/client/events/recoveries', { body: { webhookId: webhook, ...body } })
    expect((await order({ since: since(14 * 24 + 1) })).status).toBe(400)
    expect((await order({ since: since(-1) })).status).toBe(400)
    expect((await order({ since: '2026-02-31T00:00:00Z' })).status).toBe(400)
    expect((await order({ since: since(1), webhookId: newId(1) })).status).toBe(404)
    await autoDelete(app, webhook)
    expect((await order({ since: since(1) })).body.error.code).toBe('invalid_state')
  })

  test('by staff is audited; a webhook of another account is unknown', async () => {
    const ofOther = await buildLab(app, other)
    const foreign = await app.call('POST', '/client/events/subscribe', {
      token: other.token,
      body: subscribeBody(ofOther),
    })
    const body = { webhookId: foreign.body.data._id, since: since(1) }
    expect((await asStaff('POST', '/recoveries', { body })).body.error.code).toBe('unknown_webhook')
    const started = await asStaff('POST', '/recoveries', { body: { ...body, webhookId: webhook } })
    expect(started.status).toBe(201)
    const { targets } = await audited('startAccountRecovery')
    expect(JSON.parse(targets)).toEqual({ webhookId: webhook, recoveryId: started.body.recoveryId })
  })
})

describe('missed events', () => {
  test('are those of the times in which the webhook was auto-deleted, and can be read', async () => {
    const record = (labId: string, type: 'lead.created' | 'bill.created') =>
      buildEvent(app.database, { accountId: account.id, labId, type, atMs: app.clock.nowMs() })
    const before = await record(lab.id, 'lead.created')
    await autoDelete(app, webhook)
    const missed = await record(lab.id, 'lead.created')
    // Not what it is registered for, and of another lab.
    await record(lab.id, 'bill.created')
    await record((await buildLab(app, account)).id, 'lead.created')
    const list = () => call('GET', '/client/events/missed', { query: { labID: lab.id, webhookId: webhook } })
    const row = { eventId: publicEventId(missed), webhookId: webhook, type: 'lead.created' }
    expect((await list()).body.data).toMatchObject([row])
    const reactivated = await call('PATCH', `/client/events/reactivateEvent/${webhook}`)
    expect(reactivated.status).toBe(200)
    await record(lab.id, 'lead.created')
    expect((await list()).body).toMatchObject({ data: [row], nextCursor: null })
    const shown = await call('GET', `/client/events/missed/${webhook}/${publicEventId(missed)}`)
    expect(shown.body.data).toMatchObject({ ...row, body: JSON.stringify({ id: publicEventId(missed) }) })
    expect((await call('GET', `/client/events/missed/${webhook}/${publicEventId(before)}`)).status).toBe(404)
    const redelivered = await call('POST', `/client/events${pathOf(missed)}/redeliver`)
    expect([redelivered.status, redelivered.body.error.code]).toEqual([409, 'missed_event'])
    const asOperator = await asStaff('GET', '/missed-events', { query: { webhookId: webhook } })
    expect(asOperator.body.missedEvents).toMatchObject([row])
  })

  test('are those of the time up to the deletion where the webhook was then deleted for good', async () => {
    const record = () => buildEvent(app.database, { accountId: account.id, labId: lab.id, atMs: app.clock.nowMs() })
    const list = async () => {
      const { body } = await call('GET', '/client/events/missed', { query: { labID: lab.id, webhookId: webhook } })
      return body.data.map((row: { eventId: string }) => row.eventId)
    }
    await autoDelete(app, webhook)
    const missed = await record()
    await new Promise((resolve) => setTimeout(resolve, 5))
    app.clock.set(new Date(await app.database.readTimeMs()).toISOString())
    await call('DELETE', `/client/events/deleteEvent/${webhook}`, { query: { labID: lab.id } })
    await record()
    expect(await knex()('webhooks').where({ id: webhook }).first('state')).toEqual({ state: 'deleted' })
    expect(await list()).toEqual([publicEventId(missed)])
    const shown = await call('GET', `/client/events/missed/${webhook}/${publicEventId(missed)}`)
    expect(shown.status).toBe(200)
  })

  test('of a webhook that was never auto-deleted there are none, also behind its deletion', async () => {
    await call('DELETE', `/client/events/deleteEvent/${webhook}`, { query: { labID: lab.id } })
    await buildEvent(app.database, { accountId: account.id, labId: lab.id, atMs: app.clock.nowMs() })
    const { body } = await call('GET', '/client/events/missed', { query: { labID: lab.id, webhookId: webhook } })
    expect(body.data).toEqual([])
  })

  test('are no messages that a webhook without a party got instead of a party’s', async () => {
    const events = ['lead.created', 'booking.send']
    const { id: corporateId } = await buildParty(app, account, 'corporate')
    const subscribe = async (fields: object) => {
      const body = subscribeBody(lab, { events, ...fields })
      const answer = await app.call('POST', '/client/events/subscribe', { token: account.token, body })
      return answer.body.data._id as string
    }
    const switchTo = async (mode: string) => {
      await knex()('accounts').where({ id: account.id }).update({ mode })
      app.clock.advance(1000)
    }
    await switchTo('party_scoped')
    const bound = await subscribe({ corporateUser: corporateId })
    await switchTo('catch_all')
    const all = await subscribe({})
    await autoDelete(app, bound)
    const list = async () => {
      const { body } = await asStaff('GET', '/missed-events', { query: { webhookId: bound } })
      return new Set(body.missedEvents.map((row: { eventId: string }) => row.eventId))
    }
    const event = { accountId: account.id, labId: lab.id, corporateId, atMs: app.clock.nowMs() }
    const lead = publicEventId(await buildEvent(app.database, event))
    await buildMessage(app.database, event)
    expect(await list()).toEqual(new Set([lead]))
    await autoDelete(app, all)
    const message = publicEventId(await buildMessage(app.database, event))
    expect(await list()).toEqual(new Set([message, lead]))
  })

  test('are paged through', async () => {
    await autoDelete(app, webhook)
    const ids: string[] = []
    for (let i = 0; i < 5; i++) {
      ids.push(await buildEvent(app.database, { accountId: account.id, labId: lab.id, atMs: app.clock.nowMs() + i }))
    }
    const read: string[] = []
    let cursor: string | undefined
    do {
      const query = { labID: lab.id, webhookId: webhook, limit: '2', ...(cursor ? { cursor } : {}) }
      const { body } = await call('GET', '/client/events/missed', { query })
      read.push(...body.data.map((row: any) => row.eventId))
      cursor = body.nextCursor ?? undefined
    } while (cursor)
    expect(read).toEqual(ids.reverse().map(publicEventId))
  })
})

describe('failing webhooks', () => {
  const fail = (id: string, hours: number) =>
    knex()('webhooks')
      .where({ id })
      .update({
        first_failure_at: new Date(app.clock.nowMs() - hours * HOUR_MS),
        failed_attempts: 7,
        last_error: 'HTTP status 503',
      })

  test('are listed the longest failing first, with what waits for them', async () => {
    const second = (await call('POST', '/client/events/subscribe', { body: subscribeBody(lab) })).body.data._id
    await fail(webhook, 2)
    await fail(second, 5)
    const [older, newer] = [await eventAgo(4), await eventAgo(3)]
    const dueAt = new Date(app.clock.nowMs() + HOUR_MS)
    await buildPending(knex(), second, newer, { dueAt: new Date(app.clock.nowMs() + 2 * HOUR_MS) })
    await buildPending(knex(), second, older, { dueAt })
    const { body } = await asStaff('GET', '/failing-webhooks')
    expect(body.webhooks.map((row: any) => row.webhookId)).toEqual([second, webhook])
    const recorded = new Date(timeOfId(older))
    expect(body.webhooks[0]).toMatchObject({
      labID: lab.id,
      failedAttempts: 7,
      lastError: 'HTTP status 503',
      warned: false,
      backlog: 2,
      backlogIsMore: false,
      oldestEventAt: recorded.toISOString(),
      nextAttemptAt: dueAt.toISOString(),
    })
    expect(body.webhooks[1]).toMatchObject({ backlog: 0 })
    const query = { limit: '1' }
    const page = await asStaff('GET', '/failing-webhooks', { query })
    const next = await asStaff('GET', '/failing-webhooks', { query: { ...query, cursor: page.body.nextCursor } })
    expect(next.body).toMatchObject({ webhooks: [{ webhookId: webhook }], nextCursor: null })
    await knex()('webhooks').whereIn('id', [webhook, second]).update({ first_failure_at: null })
  })

  test('with a long backlog are counted to 10,000, and its oldest event is found behind later due times', async () => {
    await fail(webhook, 5)
    const firstMs = app.clock.nowMs() - 5 * HOUR_MS
    const ids = Array.from({ length: 10_002 }, (_, i) => newId(firstMs + i))
    const event = { account_id: account.id, lab_id: lab.id, type: 'lead.created' }
    for (let i = 0; i < ids.length; i += 2000) {
      const some = ids.slice(i, i + 2000)
      const rows = some.map((id, n) => ({ ...event, id, subject_id: id, recorded_at: new Date(firstMs + i + n) }))
      await knex()('events').insert(rows)
      await knex()('delivery_queue').insert(
        some.map((id, n) => ({
          webhook_id: webhook,
          event_id: id,
          // The first was tried, and waits for its retry behind all that were not.
          due_at: new Date(firstMs + (i + n === 0 ? 9 * HOUR_MS : i + n)),
          epoch: 1,
        })),
      )
    }
    const { body } = await app.call('GET', '/operator/failing-webhooks', { token: staffKey })
    expect(body.webhooks).toMatchObject([
      { webhookId: webhook, backlog: 10_000, backlogIsMore: true, oldestEventAt: new Date(firstMs).toISOString() },
    ])
    const foreignKey = await buildOperatorKey(app, { role: 'staff', accountId: other.id })
    expect((await app.call('GET', '/operator/failing-webhooks', { token: foreignKey })).body.webhooks).toEqual([])
  })
})
