import { afterAll, beforeAll, expect, test } from 'vitest'
import { sendThrough } from '../../db/batch.ts'
import type { Lab } from '../../src/catalogue/labs-repository.ts'
import { newId } from '../../src/ids.ts'
import { insertMailStatement } from '../../src/mails/mails-repository.ts'
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

let app: TestApp
let token: string
let account: TestAccount
let lab: Lab

beforeAll(async () => {
  app = await startTestApp()
  token = await buildOperatorKey(app)
  account = await buildAccount(app, { mode: 'party_scoped' })
  lab = await buildLab(app, account)
})
afterAll(() => app.close())

const of = (path = '', own: TestAccount = account) => `/operator/accounts/${own.id}/webhooks${path}`
const call = (method: string, path: string, body?: unknown, query: Record<string, string> = {}) =>
  app.call(method, path, { token, body, query })
const webhookBody = (fields: Record<string, unknown> = {}) => ({
  labID: lab.id,
  events: ['lead.created'],
  endpoint: 'https://lims.example.in/hooks/lab',
  ...fields,
})
const list = async (query: Record<string, string> = {}) => (await call('GET', of(), undefined, query)).body.webhooks
const listOfIntegrator = async (query: Record<string, string>, own = account) =>
  app.call('GET', '/client/events/getAllEvents', { token: own.token, query: { labID: lab.id, ...query } })

test('a webhook without a party of a party-scoped account is made, listed, deleted and reactivated here alone', async () => {
  const party = await buildParty(app, account, 'corporate')
  const made = await call('POST', of(), webhookBody({ events: ['lead.created', 'lead.created'] }))
  expect(made.status).toBe(201)
  const { webhook, secret } = made.body
  expect(secret).toMatch(/^whsec_/)
  expect(webhook).toMatchObject({ state: 'active', labID: lab.id, events: ['lead.created'], firstFailureAt: null })
  expect((await listOfIntegrator({ corporateUser: party.id })).body.data).toEqual([])
  const deleteAsIntegrator = await app.call('DELETE', `/client/events/deleteEvent/${webhook.webhookId}`, {
    token: account.token,
    query: { labID: lab.id, corporateUser: party.id },
  })
  expect(deleteAsIntegrator.status).toBe(404)
  expect(await list({ partyless: 'true' })).toContainEqual(webhook)

  await autoDelete(app, webhook.webhookId)
  const [row] = await list({ state: 'auto_deleted' })
  expect(row).toMatchObject({ webhookId: webhook.webhookId, failedAttempts: 9, lastError: 'HTTP status 503' })
  const path = of(`/${webhook.webhookId}`)
  const active = await call('POST', `${path}/reactivate`)
  expect(active.body).toMatchObject({ state: 'active', failedAttempts: 0, lastError: null, deactivatedAt: null })
  const again = await call('POST', `${path}/reactivate`)
  expect([again.status, again.body.error.code]).toEqual([409, 'invalid_state'])
  expect((await call('DELETE', path)).body).toMatchObject({ state: 'deleted' })
  const answers = [await call('DELETE', path), await call('POST', `${path}/reactivate`)]
  expect(answers.map(({ status }) => status)).toEqual([404, 404])
  expect(await list({ partyless: 'true' })).toEqual([])
})

test('a webhook from before a switch of mode stays active, out of reach of its integrator, until the switch back', async () => {
  const own = await buildAccount(app)
  const branch = await buildLab(app, own)
  const body = subscribeBody(branch)
  const { _id } = (await app.call('POST', '/client/events/subscribe', { token: own.token, body })).body.data
  const party = await buildParty(app, own, 'doctor')
  const switchTo = async (mode: string) => {
    await call('PATCH', `/operator/accounts/${own.id}`, { mode })
    app.clock.advance(1000)
  }
  const seen = async (query: Record<string, string>) => {
    const sent = { token: own.token, query: { labID: branch.id, ...query } }
    return (await app.call('GET', '/client/events/getAllEvents', sent)).body.data.map((row: any) => row._id)
  }
  await switchTo('party_scoped')
  expect(await seen({ organization: party.id })).toEqual([])
  expect((await call('GET', of('', own))).body.webhooks).toMatchObject([{ webhookId: _id, state: 'active' }])
  await switchTo('catch_all')
  expect(await seen({})).toEqual([_id])
})

test("webhooks of every lab and party are listed, by lab, party and health; another account's are not", async () => {
  const own = await buildAccount(app, { mode: 'party_scoped' })
  const [one, two] = [await buildLab(app, own), await buildLab(app, own)]
  const [corporate, doctor] = [await buildParty(app, own, 'corporate'), await buildParty(app, own, 'doctor')]
  const subscribe = async (branch: Lab, fields: Record<string, unknown>) => {
    app.clock.advance(1)
    const sent = { token: own.token, body: subscribeBody(branch, fields) }
    return (await app.call('POST', '/client/events/subscribe', sent)).body.data._id as string
  }
  const a = await subscribe(one, { corporateUser: corporate.id })
  const b = await subscribe(two, { corporateUser: corporate.id })
  const c = await subscribe(two, { organization: doctor.id })
  await app.database.knex('webhooks').where({ id: b }).update({ first_failure_at: app.clock.now(), failed_attempts: 2 })
  const ids = async (query: Record<string, string> = {}) =>
    (await call('GET', of('', own), undefined, query)).body.webhooks.map((row: any) => row.webhookId)
  expect(await ids()).toEqual([a, b, c])
  expect(await ids({ labID: two.id })).toEqual([b, c])
  expect(await ids({ partyId: corporate.id })).toEqual([a, b])
  expect(await ids({ partyId: doctor.id })).toEqual([c])
  expect(await ids({ partyless: 'true' })).toEqual([])
  expect([await ids({ failing: 'true' }), await ids({ failing: 'false' })]).toEqual([[b], [a, c]])
  const first = (await call('GET', of('', own), undefined, { limit: '2' })).body
  expect(await ids({ cursor: first.nextCursor })).toEqual([c])
  expect((await call('DELETE', of(`/${a}`))).status).toBe(404)
  expect((await call('POST', of(`/${a}/reactivate`))).status).toBe(404)
})

test('a reactivated webhook of a party clashes with the one that has taken its place', async () => {
  const party = await buildParty(app, account, 'corporate')
  const subscribe = async () => {
    const sent = { token: account.token, body: subscribeBody(lab, { corporateUser: party.id }) }
    return (await app.call('POST', '/client/events/subscribe', sent)).body.data._id as string
  }
  const old = await subscribe()
  await autoDelete(app, old)
  const successor = await subscribe()
  const clash = await call('POST', of(`/${old}/reactivate`))
  expect([clash.status, clash.body.error.code]).toEqual([409, 'duplicate_webhook'])
  expect((await call('DELETE', of(`/${successor}`))).status).toBe(200)
  expect((await call('POST', of(`/${old}/reactivate`))).status).toBe(200)
})

test('one can be made only for an active lab of the account, some event and an address that may be called', async () => {
  const foreign = await buildLab(app, await buildAccount(app))
  const closed = await buildLab(app, account, { active: false })
  const answers = await Promise.all(
    [
      { labID: foreign.id },
      { events: [] },
      { events: ['lead.lost'] },
      { endpoint: 'https://10.0.0.5/' },
      { endpoint: 'http://a.example/' },
    ].map((fields) => call('POST', of(), webhookBody(fields))),
  )
  expect(answers.map(({ status }) => status)).toEqual([400, 400, 400, 400, 400])
  for (const endpoint of ['http://a.example/', 'ftp://x/', 'x']) {
    const { body } = await call('POST', of(), webhookBody({ endpoint }))
    expect(body.error.details).toBe(`endpoint must begin with https://, not ${endpoint}`)
  }
  expect((await call('POST', of(), webhookBody({ labID: closed.id }))).body.error.code).toBe('invalid_state')
  const staff = await buildOperatorKey(app, { role: 'staff' })
  expect((await app.call('POST', of(), { token: staff, body: webhookBody() })).status).toBe(403)
  expect((await app.call('GET', of(), { token: staff })).status).toBe(200)
})

test("mails about a webhook go to the lab's admin, and to the account's where the lab has none", async () => {
  const { webhookId } = (await call('POST', of(), webhookBody())).body.webhook
  const path = `/operator/labs/${lab.id}`
  const recipients = []
  for (const adminEmail of ['lab@x.example', null]) {
    await call('PATCH', path, { adminEmail })
    const now = app.clock.now()
    const health = { firstFailureAt: now, failedAttempts: 1, lastError: 'x', warnedAt: null }
    const mailId = newId(now.getTime())
    await app.database.transaction((trx) =>
      sendThrough(trx)([insertMailStatement(mailId, 'warning', webhookId, health, now)]),
    )
    const mail = await app.database.knex('mails').where({ id: mailId }).first()
    recipients.push(mail.recipient)
  }
  expect(recipients).toEqual(['lab@x.example', account.adminEmail])
})
