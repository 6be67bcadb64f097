/**
 * Rotating a signing secret is an addition of ours; the specification knows neither signatures nor secrets. Proves of it:
 * - "Delivery payload shape, signing or verification headers, and the retry schedule: not shown.": what we chose holds.
 * - "Party-scoped accounts must pass the same party the webhook is bound to; only own party's webhooks …": here too.
 */
import { Webhook } from 'standardwebhooks'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { startHttpsReceiver, type HttpsReceiver, type ReceivedRequest } from '../../scripts/https-receiver.ts'
import type { Lab } from '../../src/catalogue/labs-repository.ts'
import type { Party } from '../../src/catalogue/parties-repository.ts'
import { monotonicMs } from '../../src/clock.ts'
import { LANE_VIEW_MAX_AGE_MS } from '../../src/deliveries/lanes-repository.ts'
import { newId, publicEventId } from '../../src/ids.ts'
import { getDeliverySettings, keysAt } from '../../src/webhooks/delivery-settings-repository.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { autoDelete, buildAccount, buildLab, buildParty, subscribeBody, type TestAccount } from '../support/builders.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { secretOfKey } from '../support/secret-of-key.ts'
import { createTestTls } from '../support/tls.ts'

describe('the operation', () => {
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
    lab = await buildLab(app, catchAll)
    scopedLab = await buildLab(app, scoped)
    corporate = await buildParty(app, scoped, 'corporate')
    doctor = await buildParty(app, scoped, 'doctor')
  })
  afterAll(() => app.close())

  const rotate = (account: TestAccount, id: string, query: Record<string, string>, body?: unknown) =>
    app.call('POST', `/client/events/rotateSecret/${id}`, { token: account.token, query, body })
  const subscribed = async (account: TestAccount, body: Record<string, unknown>): Promise<any> =>
    (await app.call('POST', '/client/events/subscribe', { token: account.token, body })).body.data
  const secretsAt = async (id: string, now: Date) => {
    const settings = await getDeliverySettings(app.database.knex, app.keys, id, now)
    return keysAt(settings, now).map(secretOfKey)
  }
  const later = (seconds: number) => new Date(app.clock.nowMs() + seconds * 1000)

  test('shows the new secret and until when the old one signs: 24 hours where nothing is said', async () => {
    const { secret, ...row } = await subscribed(catchAll, subscribeBody(lab))
    app.clock.advance(1000)
    const { status, body } = await rotate(catchAll, row._id, { labID: lab.id })
    expect([status, body]).toEqual([
      200,
      {
        success: true,
        message: 'Secret rotated',
        data: {
          ...row,
          updatedAt: app.clock.now().toISOString(),
          secret: expect.stringMatching(/^whsec_[A-Za-z0-9+/]{43}=$/),
          previousSecretExpiresAt: later(86_400).toISOString(),
        },
      },
    ])
    expect(body.data.secret).not.toBe(secret)
    expect(await secretsAt(row._id, app.clock.now())).toEqual([body.data.secret, secret])
    expect(await secretsAt(row._id, later(86_399.999))).toEqual([body.data.secret, secret])
    expect(await secretsAt(row._id, later(86_400))).toEqual([body.data.secret])
    const rows = await app.database.knex('webhook_secrets').where({ webhook_id: row._id })
    for (const { sealed } of rows) expect(sealed.toString('latin1')).not.toContain(body.data.secret.slice(6, 20))
    const listed = await app.call('GET', '/client/events/getAllEvents', {
      token: catchAll.token,
      query: { labID: lab.id },
    })
    expect(JSON.stringify(listed.body)).not.toContain('whsec_')
  })

  test('ends the old secret at once with graceSeconds 0', async () => {
    const { _id } = await subscribed(catchAll, subscribeBody(lab))
    const { body } = await rotate(catchAll, _id, { labID: lab.id }, { graceSeconds: 0 })
    expect(body.data.previousSecretExpiresAt).toBe(app.clock.now().toISOString())
    expect(await secretsAt(_id, app.clock.now())).toEqual([body.data.secret])
  })

  test('again leaves the two newest secrets, in any order of clocks, and always moves updatedAt', async () => {
    const { _id, updatedAt } = await subscribed(catchAll, subscribeBody(lab))
    const secrets: string[] = []
    const times = new Set<string>([updatedAt])
    for (let n = 0; n < 4; n++) {
      if (n === 2) app.clock.advance(-60_000)
      const { body } = await rotate(catchAll, _id, { labID: lab.id }, { graceSeconds: 600 })
      secrets.unshift(body.data.secret)
      times.add(body.data.updatedAt)
      expect(await secretsAt(_id, app.clock.now())).toHaveLength(2)
    }
    expect(await secretsAt(_id, app.clock.now())).toEqual(secrets.slice(0, 2))
    expect(times.size).toBe(5)
  })

  test('32 times at once leaves two secrets that were both answered', async () => {
    const { _id } = await subscribed(catchAll, subscribeBody(lab))
    const answers = await Promise.all(Array.from({ length: 32 }, () => rotate(catchAll, _id, { labID: lab.id })))
    expect(answers.map(({ status }) => status)).toEqual(Array(32).fill(200))
    const kept = await secretsAt(_id, app.clock.now())
    expect(kept).toHaveLength(2)
    const answered = answers.map(({ body }) => body.data.secret)
    for (const secret of kept) expect(answered).toContain(secret)
  })

  test('serves an auto-deleted webhook too, for when it comes back', async () => {
    const { _id } = await subscribed(catchAll, subscribeBody(lab))
    await autoDelete(app, _id)
    expect((await rotate(catchAll, _id, { labID: lab.id })).status).toBe(200)
  })

  test.each([-1, 604_801, 1.5, '3600', null])('is 400 naming graceSeconds for %j', async (graceSeconds) => {
    const { _id } = await subscribed(catchAll, subscribeBody(lab))
    const answer = await rotate(catchAll, _id, { labID: lab.id }, { graceSeconds })
    expect([answer.status, answer.body.error.fields[0].field]).toEqual([400, 'graceSeconds'])
  })

  test('follows the party rule and the lab rule of deleting', async () => {
    const { _id } = await subscribed(scoped, subscribeBody(scopedLab, { organization: doctor.id }))
    const none = await rotate(scoped, _id, { labID: scopedLab.id })
    expect([none.status, none.body.error.code]).toEqual([400, 'party_required'])
    const both = await rotate(scoped, _id, {
      labID: scopedLab.id,
      corporateUser: corporate.id,
      organization: doctor.id,
    })
    expect([both.status, both.body.error.code]).toEqual([400, 'party_ambiguous'])
    const unknown = await rotate(scoped, _id, { labID: scopedLab.id, organization: corporate.id })
    expect([unknown.status, unknown.body.error.code]).toEqual([400, 'unknown_party'])
    expect((await rotate(catchAll, _id, { labID: lab.id, organization: doctor.id })).status).toBe(400)
    expect((await rotate(catchAll, _id, { labID: scopedLab.id })).status).toBe(403)
    expect((await rotate(scoped, _id, { labID: scopedLab.id, corporateUser: corporate.id })).status).toBe(404)
    expect((await rotate(scoped, _id, { labID: scopedLab.id, organization: doctor.id })).status).toBe(200)
  })

  test('is one and the same 404 for what is unknown, malformed, deleted or of another account', async () => {
    const stranger = await subscribed(scoped, subscribeBody(await buildLab(app, scoped), { organization: doctor.id }))
    const gone = await subscribed(catchAll, subscribeBody(lab))
    const query = { labID: lab.id }
    await app.call('DELETE', `/client/events/deleteEvent/${gone._id}`, { token: catchAll.token, query })
    const errors = new Set<string>()
    for (const id of [newId(0), 'x', '%00', stranger._id, gone._id, 'x'.repeat(5000)]) {
      const answer = await rotate(catchAll, id, query)
      expect(answer.status).toBe(404)
      errors.add(JSON.stringify(answer.body.error))
    }
    expect([...errors]).toEqual(['{"details":"webhook not found","code":"not_found"}'])
  })
})

describe('deliveries during and after a rotation', () => {
  let db: TestDatabase
  let tls: Awaited<ReturnType<typeof createTestTls>>
  let world: DeliveryWorld
  let receiver: HttpsReceiver

  beforeAll(async () => {
    tls = await createTestTls()
    db = await openTestDatabase()
  })
  afterAll(async () => {
    await db.close()
    tls.remove()
  })
  beforeEach(async () => {
    receiver = await startHttpsReceiver(tls)
    world = await new DeliveryWorld(db.database).open()
  })
  afterEach(async () => {
    await world.close()
    await receiver.close()
    for (const table of ['delivery_queue', 'unrouted_events', 'lanes', 'webhooks', 'webhook_events', 'daemons']) {
      await db.database.knex(table).delete()
    }
  })

  const verifies = (secret: string, request: ReceivedRequest): boolean => {
    try {
      new Webhook(secret).verify(request.body, request.headers as Record<string, string>)
      return true
    } catch {
      return false
    }
  }
  /** What the next event is signed with: old secret, new secret, number of signatures. */
  async function signedWith(old: string, current: string): Promise<[boolean, boolean, number]> {
    const { id } = await world.event()
    const isIt = (request: ReceivedRequest) => request.headers['webhook-id'] === publicEventId(id)
    await expect.poll(() => receiver.requests.some(isIt), { timeout: 10_000, interval: 5 }).toBe(true)
    const request = receiver.requests.find(isIt)!
    const count = String(request.headers['webhook-signature']).split(' ').length
    return [verifies(old, request), verifies(current, request), count]
  }

  test('a lane that is running signs with both within a second, the new one first, and drops the old one when it expires', async () => {
    const webhook = await world.webhook({ endpoint: receiver.url })
    await world.daemon(tls.caFile)
    expect(await signedWith(webhook.secret, webhook.secret)).toEqual([true, true, 1])
    const rotatedAtMs = world.clock.nowMs()
    const { secret } = await world.rotateSecret(webhook.id, 3)
    await expect
      .poll(() => signedWith(webhook.secret, secret), { timeout: 1000, interval: 20 })
      .toEqual([true, true, 2])
    const owner = await ownerOf(webhook.id)
    expect(owner).not.toBeNull()
    const first = String(receiver.requests.at(-1)!.headers['webhook-signature']).split(' ')[0]!
    const only = {
      ...receiver.requests.at(-1)!,
      headers: { ...receiver.requests.at(-1)!.headers, 'webhook-signature': first },
    }
    expect([verifies(secret, only), verifies(webhook.secret, only)]).toEqual([true, false])
    // A steady trickle keeps this very lane running until after the expiry.
    await expect
      .poll(() => signedWith(webhook.secret, secret), { timeout: 10_000, interval: 50 })
      .toEqual([false, true, 1])
    expect(world.clock.nowMs() - rotatedAtMs).toBeGreaterThanOrEqual(3000)
    expect(await ownerOf(webhook.id)).toBe(owner)
  })

  test('a lane that starts later signs with both, and with the new one alone once the old one has ended', async () => {
    const webhook = await world.webhook({ endpoint: receiver.url })
    const { secret } = await world.rotateSecret(webhook.id, 3600)
    await world.daemon(tls.caFile)
    expect(await signedWith(webhook.secret, secret)).toEqual([true, true, 2])
    const newest = await world.rotateSecret(webhook.id, 3600)
    await expect
      .poll(() => signedWith(webhook.secret, newest.secret), { timeout: 1000, interval: 20 })
      .toEqual([false, true, 2])
    const last = await world.rotateSecret(webhook.id, 0)
    await expect
      .poll(() => signedWith(newest.secret, last.secret), { timeout: 1000, interval: 20 })
      .toEqual([false, true, 1])
  })

  test('every attempt after the answer carries the new signature, also where the hint to the daemon was lost', async () => {
    const webhook = await world.webhook({ endpoint: receiver.url })
    await world.daemon(tls.caFile)
    let old = webhook.secret
    expect(await signedWith(old, old)).toEqual([true, true, 1])
    for (let round = 0; round < 5; round++) {
      const { secret } = await world.rotateSecret(webhook.id, 3600)
      expect(await ownerOf(webhook.id)).not.toBeNull()
      expect(await signedWith(old, secret)).toEqual([true, true, 2])
      old = secret
    }
    const { secret } = await world.rotateSecret(webhook.id, 0)
    expect(await signedWith(old, secret)).toEqual([false, true, 1])
  })

  test('an owner that is stuck delays the answer until it may start nothing any more, and not longer', async () => {
    const webhook = await world.webhook({ endpoint: receiver.url })
    await db.database
      .knex('lanes')
      .where({ webhook_id: webhook.id })
      .update({ owner: newId(0) })
    const startedAtMs = monotonicMs()
    await world.rotateSecret(webhook.id, 3600)
    expect(monotonicMs() - startedAtMs).toBeGreaterThanOrEqual(LANE_VIEW_MAX_AGE_MS - 1)
    expect(monotonicMs() - startedAtMs).toBeLessThan(LANE_VIEW_MAX_AGE_MS + 2000)
  })

  const ownerOf = async (id: string) =>
    (await db.database.knex('lanes').where({ webhook_id: id }).first('owner')).owner as string | null
})
