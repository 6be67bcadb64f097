/**
 * Leads of several accounts that are written by one transaction: each is what it would have been alone, and what happens to one of
 * them happens to no other.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { COMMIT, type BatchPool, type Statement } from '../../db/batch.ts'
import { connectDatabase, type Database } from '../../db/connection.ts'
import { runBefore } from '../../db/deadline.ts'
import { monotonicMs } from '../../src/clock.ts'
import type { Entry } from '../../src/crm/entry-rules.ts'
import { withTraceParent } from '../../src/trace-context.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { buildTelecaller } from '../support/builders.ts'
import { buildTenants, countedCalls, entryCalls, watched, type Tenant } from '../support/entry-calls.ts'

let app: TestApp
/** Another process. */
let other: Database

beforeAll(async () => {
  app = await startTestApp()
  other = connectDatabase(app.mysqlUrl)
})
afterAll(async () => {
  await other.close()
  await app.close()
})

/** A pool that tells how many transactions were committed. */
function counting(batch: BatchPool): { batch: BatchPool; commits: () => number } {
  let commits = 0
  const count = (statements: Statement[]) => void (commits += statements.at(-1)?.sql === COMMIT.sql ? 1 : 0)
  return { commits: () => commits, batch: watched(batch, count) }
}

const rows = (table: string, { account }: Tenant) =>
  app.database.knex(table).where({ account_id: account.id }).count({ n: '*' }).then(([row]) => Number(row!.n)) // prettier-ignore

/** Everything that belongs to a lead is there once, or nothing is. */
async function expectWritten(tenant: Tenant, lead: Entry | undefined): Promise<void> {
  const n = lead ? 1 : 0
  expect(await countedCalls(app, tenant.account.id)).toBe(1)
  for (const table of ['entries', 'events', 'staff_notifications']) expect([table, await rows(table, tenant)]).toEqual([table, n]) // prettier-ignore
  expect(await rows('entry_day_guards', tenant)).toBe(n)
  const turn = await app.database.knex('telecaller_turns').where({ account_id: tenant.account.id }).first()
  expect(turn.last_telecaller_id).toBe(lead ? tenant.telecaller.id : null)
  if (!lead) return
  const row = await app.database.knex('entries').where({ id: lead.id }).first()
  expect([row.account_id, row.lab_id, row.assigned_to]).toEqual([
    tenant.account.id,
    tenant.lab.id,
    tenant.telecaller.id,
  ])
  const event = await app.database.knex('events').where({ subject_id: lead.id }).first()
  const { body } = await app.database.knex('event_bodies').where({ event_id: event.id }).first('body')
  expect(JSON.parse(body).data.lead.leadId).toBe(lead.id)
  expect(await app.database.knex('unrouted_events').where({ event_id: event.id })).toHaveLength(1)
}

test('leads of many accounts are written by few transactions, each with everything that is its own', async () => {
  const tenants = await buildTenants(app, 12)
  const pool = counting(app.database.batch)
  const { create, callOf } = entryCalls(app, pool.batch)
  const traces = tenants.map((_, n) => `00-${String(n).padStart(32, 'a')}-${'b'.repeat(16)}-01`)
  const leads = await Promise.all(tenants.map((tenant, n) => withTraceParent(traces[n]!, () => create(callOf(tenant)))))
  expect(pool.commits()).toBe(1)
  for (const [n, tenant] of tenants.entries()) {
    await expectWritten(tenant, leads[n])
    const event = await app.database.knex('events').where({ subject_id: leads[n]!.id }).first()
    expect(event.trace_parent).toBe(traces[n])
  }
})

test('what one is refused with is not what the others get', async () => {
  const tenants = await buildTenants(app, 6)
  const { create, callOf } = entryCalls(app)
  const [stranger, unknown, ...sound] = tenants
  const outcomes = await Promise.allSettled([
    create(callOf(stranger!, { branchID: sound[0]!.lab.id })),
    create(callOf(unknown!, { tests: [{ test: '01m80ah2h8ca76m8z2e5rfxbwx', cost: 1 }] })),
    ...sound.map((tenant) => create(callOf(tenant))),
  ])
  expect(outcomes.slice(0, 2)).toMatchObject([
    { reason: { code: 'lab_forbidden' } },
    { reason: { code: 'unknown_test' } },
  ])
  for (const [n, tenant] of tenants.entries()) {
    const outcome = outcomes[n]!
    await expectWritten(tenant, outcome.status === 'fulfilled' ? outcome.value : undefined)
    expect(outcome.status).toBe(n < 2 ? 'rejected' : 'fulfilled')
  }
})

test("the day's second one is refused with the first one's id, and keeps nobody else out", async () => {
  const tenants = await buildTenants(app, 5)
  const { create, callOf } = entryCalls(app)
  const calls = tenants.map((tenant) => callOf(tenant))
  const first = await create(calls[2]!)
  const outcomes = await Promise.allSettled(calls.map((call) => create(call)))
  expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'fulfilled', 'rejected', 'fulfilled', 'fulfilled'])
  expect(outcomes[2]).toMatchObject({ reason: { code: 'duplicate_entry', extras: { leadId: first.id } } })
  for (const tenant of tenants) expect(await rows('entries', tenant)).toBe(1)
  const counts = await Promise.all(tenants.map(({ account }) => countedCalls(app, account.id)))
  expect(counts).toEqual([1, 1, 2, 1, 1])
})

test('of several with one contact at once exactly one is made, and those of one account take turns', async () => {
  const [tenant, neighbour] = await buildTenants(app, 2)
  const second = await buildTelecaller(app, tenant!.account)
  const { create, callOf } = entryCalls(app)
  const call = callOf(tenant!)
  const same = await Promise.allSettled([...Array.from({ length: 8 }, () => create(call)), create(callOf(neighbour!))])
  expect(same.filter(({ status }) => status === 'fulfilled')).toHaveLength(2)
  const others = await Promise.all(Array.from({ length: 8 }, () => create(callOf(tenant!))))
  const assigned = others.map(({ assignedTo }) => assignedTo)
  expect(assigned.filter((id) => id === second.id)).toHaveLength(4)
  expect(new Set(assigned)).toEqual(new Set([second.id, tenant!.telecaller.id]))
  expect(await countedCalls(app, tenant!.account.id)).toBe(16)
})

test('an account whose turns somebody holds keeps nobody else waiting', async () => {
  const tenants = await buildTenants(app, 4)
  const [held, ...free] = tenants
  const { create, callOf } = entryCalls(app)
  const trx = await other.knex.transaction()
  await trx('telecaller_turns').where({ account_id: held!.account.id }).forUpdate().first()
  const waiting = create(callOf(held!))
  let hasEnded = false
  void waiting.catch(() => {}).finally(() => (hasEnded = true))
  for (const lead of await Promise.all(free.map((tenant) => create(callOf(tenant))))) expect(lead.id).toBeTruthy()
  expect(hasEnded).toBe(false)
  await trx.commit()
  await expectWritten(held!, await waiting)
})

test('one whose time is over is not written, and the others are', async () => {
  const tenants = await buildTenants(app, 3)
  const { create, callOf } = entryCalls(app)
  const outcomes = await Promise.allSettled(
    tenants.map((tenant, n) => runBefore(monotonicMs() + (n === 1 ? 400 : 4000), () => create(callOf(tenant)))),
  )
  expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled'])
  expect(outcomes[1]).toMatchObject({ reason: { code: 'unavailable' } })
  expect(await Promise.all(tenants.map((tenant) => rows('entries', tenant)))).toEqual([1, 0, 1])
})

test('when the database goes, all that were with it are in doubt and none is tried again by itself', async () => {
  const tenants = await buildTenants(app, 3)
  let tries = 0
  const cut: BatchPool = {
    ...app.database.batch,
    transaction: () => {
      tries += 1
      return Promise.reject(Object.assign(new Error('gone'), { code: 'ECONNRESET' }))
    },
  }
  const { create, callOf } = entryCalls(app, cut)
  const outcomes = await Promise.allSettled(tenants.map((tenant) => create(callOf(tenant))))
  expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected'])
  expect(tries).toBe(1)
})

test('the event of a lead that is written by itself is told of as it goes to the database, and none of several', async () => {
  const [first, second, third] = (await buildTenants(app, 3)) as [Tenant, Tenant, Tenant]
  const { create, callOf, foretold } = entryCalls(app)
  // The first call of an account ever is made by itself.
  for (const tenant of [first, second, third]) {
    const call = callOf(tenant, { contact: '9876500001' })
    await create(call)
    expect(foretold.splice(0)).toEqual([call.eventId])
  }
  const call = callOf(first)
  await create(call)
  expect(foretold).toEqual([call.eventId])
  const refused = { ...callOf(first), body: call.body }
  await expect(create(refused)).rejects.toThrow()
  await Promise.all([create(callOf(second)), create(callOf(third))])
  expect(foretold).toEqual([call.eventId, refused.eventId])
  expect(await rows('entries', second)).toBe(2)
})
