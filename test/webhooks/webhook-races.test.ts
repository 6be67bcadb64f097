/**
 * Proves of the specification, with two API processes' worth of connections against one database:
 * - "A party may have only one active webhook per event; a duplicate returns 409."
 * - "Active webhooks per party per event | 1".
 * - "Registering the same event again without a party is not rejected".
 */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { Lab } from '../../src/catalogue/labs-repository.ts'
import type { Party } from '../../src/catalogue/parties-repository.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { autoDelete, buildAccount, buildLab, buildParty, subscribeBody, type TestAccount } from '../support/builders.ts'

const CALLS = 64

let app: TestApp
let apps: TestApp[]
let account: TestAccount
let lab: Lab
let corporate: Party

beforeAll(async () => {
  app = await startTestApp()
  apps = [app, await startTestApp({ mysqlUrl: app.mysqlUrl })]
  account = await buildAccount(app, { mode: 'party_scoped' })
  corporate = await buildParty(app, account, 'corporate')
})
afterAll(async () => {
  await apps[1]!.close()
  await app.close()
})
beforeEach(async () => {
  lab = await buildLab(app, account)
})

/** The n-th call goes to the n-th process in turn. */
const call = (n: number, method: string, path: string, options: object) =>
  apps[n % apps.length]!.call(method, `/client/events/${path}`, { token: account.token, ...options })
const query = () => ({ labID: lab.id, corporateUser: corporate.id })
const subscribe = (n: number, events: string[]) =>
  call(n, 'POST', 'subscribe', { body: subscribeBody(lab, { events, corporateUser: corporate.id }) })
const reactivate = (n: number, id: string) => call(n, 'PATCH', `reactivateEvent/${id}`, { query: query() })
const remove = (n: number, id: string) => call(n, 'DELETE', `deleteEvent/${id}`, { query: query() })

function countsOf(answers: { status: number }[]): Record<number, number> {
  const counts: Record<number, number> = {}
  for (const { status } of answers) counts[status] = (counts[status] ?? 0) + 1
  return counts
}

/** At most one active webhook a party and event, and the guards are exactly the events of the active webhooks. */
async function checkGuards(): Promise<number> {
  const events = await app.database
    .knex('webhook_events as e')
    .join('webhooks as w', 'w.id', 'e.webhook_id')
    .where({ 'w.lab_id': lab.id, 'w.state': 'active' })
    .select('e.event_type', 'w.id')
  const guards = await app.database.knex('webhook_party_guards').where({ lab_id: lab.id, party_id: corporate.id })
  const active = events.map((row) => `${row.event_type} ${row.id}`).sort()
  expect(guards.map((row) => `${row.event_type} ${row.webhook_id}`).sort()).toEqual(active)
  expect(new Set(events.map((row) => row.event_type)).size).toBe(events.length)
  return events.length
}

test('of 64 subscriptions for one party and event exactly one wins, over and over', async () => {
  for (let round = 0; round < 3; round++) {
    lab = await buildLab(app, account)
    const answers = await Promise.all(Array.from({ length: CALLS }, (_, n) => subscribe(n, ['lead.created'])))
    expect(countsOf(answers)).toEqual({ 200: 1, 409: CALLS - 1 })
    expect(await checkGuards()).toBe(1)
  }
})

test('of 64 subscriptions with overlapping sets in different orders, each event has one winner and nothing is stored of a loser', async () => {
  const all = ['lead.created', 'booking.created', 'bill.created', 'report.completed', 'bill.send']
  const sets = Array.from({ length: CALLS }, (_, n) => {
    const turned = [...all.slice(n % all.length), ...all.slice(0, n % all.length)]
    const some = turned.slice(0, 1 + (n % 3))
    return n % 2 === 0 ? some : some.toReversed()
  })
  const answers = await Promise.all(sets.map((events, n) => subscribe(n, events)))
  const counts = countsOf(answers)
  expect(counts[200]! + counts[409]!).toBe(CALLS)
  const winners = answers.filter(({ status }) => status === 200).flatMap(({ body }) => body.data.events as string[])
  expect(new Set(winners).size).toBe(winners.length)
  expect(await checkGuards()).toBe(winners.length)
  expect(await app.database.knex('webhooks').where({ lab_id: lab.id })).toHaveLength(counts[200]!)
  // Whoever was refused clashes with a winner on each event that the refusal names.
  for (const { status, body } of answers) {
    if (status !== 409) continue
    const named = (body.error.details as string).split(' for ')[1]!.split(', ')
    for (const event of named) expect(winners).toContain(event)
  }
})

test('of 64 reactivations of webhooks that clash exactly one wins', async () => {
  const ids: string[] = []
  for (let n = 0; n < 8; n++) {
    const { _id } = (await subscribe(n, ['lead.created', 'bill.created'])).body.data
    await autoDelete(app, _id)
    ids.push(_id)
  }
  const answers = await Promise.all(Array.from({ length: CALLS }, (_, n) => reactivate(n, ids[n % ids.length]!)))
  const counts = countsOf(answers)
  expect(counts[200]).toBe(1)
  // The winner's other seven calls no longer find it among the auto-deleted.
  expect(counts[404]! + (counts[409] ?? 0)).toBe(CALLS - 1)
  expect(await checkGuards()).toBe(2)
})

describe('subscribing, reactivating and deleting at once', () => {
  test('leaves at most one active webhook a party and event after every round', async () => {
    const sets = [
      ['lead.created', 'bill.created'],
      ['bill.created', 'report.completed'],
      ['report.completed', 'lead.created'],
    ]
    const known: string[] = []
    for (let round = 0; round < 8; round++) {
      const turn = async (n: number): Promise<{ status: number }> => {
        const kind = n % 4
        const id = known[(n * 7 + round) % Math.max(known.length, 1)]
        if (kind < 2 || id === undefined) {
          const answer = await subscribe(n >> 2, sets[n % sets.length]!)
          if (answer.status === 200) known.push(answer.body.data._id)
          return answer
        }
        return kind === 2 ? reactivate(n >> 2, id) : remove(n >> 2, id)
      }
      const answers = await Promise.all(Array.from({ length: CALLS }, (_, n) => turn(n)))
      for (const { status } of answers) expect([200, 404, 409]).toContain(status)
      await checkGuards()
      const active = await app.database.knex('webhooks').where({ lab_id: lab.id, state: 'active' }).select('id')
      // What is active now goes like a failing webhook, so that the next round has something to reactivate.
      for (const { id } of active) await autoDelete(app, id)
      await checkGuards()
    }
    const states = await app.database.knex('webhooks').where({ lab_id: lab.id }).distinct('state')
    for (const { state } of states) expect(['active', 'auto_deleted', 'deleted']).toContain(state)
  })

  test('a webhook that is reactivated and deleted at once is deleted in the end, and its event is free', async () => {
    for (let round = 0; round < 8; round++) {
      const { _id } = (await subscribe(round, ['lead.created'])).body.data
      await autoDelete(app, _id)
      const answers = await Promise.all(
        Array.from({ length: 16 }, (_, n) => (n % 2 === 0 ? reactivate(n >> 1, _id) : remove(n >> 1, _id))),
      )
      const deletions = answers.filter((_, n) => n % 2 === 1)
      expect(countsOf(deletions)).toEqual({ 200: 1, 404: 7 })
      expect(await app.database.knex('webhooks').where({ id: _id }).first()).toMatchObject({ state: 'deleted' })
      expect(await checkGuards()).toBe(0)
    }
  })
})

test('64 subscriptions without a party, over two processes, are all accepted', async () => {
  const catchAll = await buildAccount(app)
  const catchAllLab = await buildLab(app, catchAll)
  const answers = await Promise.all(
    Array.from({ length: CALLS }, (_, n) =>
      apps[n % 2]!.call('POST', '/client/events/subscribe', {
        token: catchAll.token,
        body: subscribeBody(catchAllLab),
      }),
    ),
  )
  expect(countsOf(answers)).toEqual({ 200: CALLS })
})

test('of 20 uses of one refresh token at once, over two processes, exactly one is answered 200', async () => {
  const { clientId: clientID, clientSecret } = account
  const issued = await app.call('POST', '/client/auth/token', { body: { clientID, clientSecret } })
  const { refreshToken } = issued.body
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, n) =>
      apps[n % 2]!.call('POST', '/client/auth/token/refresh', { body: { clientID, refreshToken } }),
    ),
  )
  expect(countsOf(answers)).toEqual({ 200: 1, 401: 19 })
})

test('no call of this file was answered with a fault of ours', () => {
  for (const { logs } of apps) expect(logs().filter(({ status }) => Number(status) >= 500)).toEqual([])
})
