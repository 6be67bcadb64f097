/**
 * A lead that is written in one round trip by what the last one found is what it would have been had everything been looked up; and
 * where something has changed since, what is there now counts.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { connectDatabase, type Database } from '../../db/connection.ts'
import { CRM_CALLS, packCalls } from '../../src/crm/crm-budget-rules.ts'
import type { Entry } from '../../src/crm/entry-rules.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { buildLab, buildParty, buildTelecaller, setCrmSettings } from '../support/builders.ts'
import {
  buildTenants,
  countedCalls,
  entryCalls,
  watched,
  type EntryCalls,
  type Tenant,
} from '../support/entry-calls.ts'

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

/** A process, how many round trips with statements it has made, and with what each of them began. */
function counted(): EntryCalls & { trips: () => number; first: string[] } {
  let trips = 0
  const first: string[] = []
  const counting = watched(app.database.batch, (statements) => {
    trips += 1
    first.push(statements[0]!.sql)
  })
  const takeTrips = () => [trips, (trips = 0)][0]!
  return { ...entryCalls(app, counting), trips: takeTrips, first }
}

type Process = ReturnType<typeof counted>

/** Until the next lead of each is made by what was found. */
async function practised(tenants: Tenant[]): Promise<Process> {
  const process = counted()
  for (const tenant of tenants) {
    for (let n = 0; n < 3; n++) await process.create(process.callOf(tenant))
    process.trips()
    await process.create(process.callOf(tenant))
    expect(process.trips()).toBe(1)
  }
  process.foretold.splice(0)
  return process
}

const table = (name: string, { account }: Tenant) => app.database.knex(name).where({ account_id: account.id })
const knex = () => app.database.knex

/** All rows that belong to a lead, without what is of its time and its ids. */
async function rowsOf(tenant: Tenant, lead: Entry) {
  const strip = (row: Record<string, unknown>) =>
    Object.fromEntries(Object.entries(row).filter(([name]) => !/(^|_)(id|at|hash|to|contact|email)$/.test(name)))
  const event = await knex()('events').where({ subject_id: lead.id }).first()
  const body = JSON.parse((await knex()('event_bodies').where({ event_id: event.id }).first('body')).body)
  return {
    entry: strip(await knex()('entries').where({ id: lead.id }).first()),
    event: strip(event),
    fields: Object.keys(body.data.lead),
    waiting: await knex()('unrouted_events').where({ event_id: event.id }).select('is_message'),
    guards: (await table('entry_day_guards', tenant).where({ entry_id: lead.id })).map(strip),
    notifications: (await table('staff_notifications', tenant).where({ entry_id: lead.id })).map(strip),
    items: await knex()('entry_items').where({ entry_id: lead.id }).select('kind', 'item_id', 'name', 'price'),
  }
}

test('it has the rows, the budget and the telecaller that one has whose account was looked up', async () => {
  const [tenant] = (await buildTenants(app, 1)) as [Tenant]
  const second = await buildTelecaller(app, tenant.account)
  const process = await practised([tenant])
  const fields = { email: 'asha@example.in', unmappedTests: [{ name: 'Vitamin D', cost: 900 }], age: 41 }
  const fresh = entryCalls(app)
  const lookedUp = fresh.callOf(tenant, fields)
  const first = await fresh.create(lookedUp)
  await process.create(process.callOf(tenant))
  await process.create(process.callOf(tenant))
  process.trips()
  const call = process.callOf(tenant, { ...fields, email: 'asha2@example.in' })
  const lead = await process.create(call)
  expect(process.trips()).toBe(1)
  expect(process.foretold.at(-1)).toBe(call.eventId)
  expect(await rowsOf(tenant, lead)).toEqual(await rowsOf(tenant, first))
  expect(await countedCalls(app, tenant.account.id)).toBe(8)
  expect(lookedUp.res.getHeader('RateLimit')).toMatch(/^"crm";r=55;t=/)
  expect(call.res.getHeader('RateLimit')).toMatch(/^"crm";r=52;t=/)
  expect(call.res.getHeader('RateLimit-Policy')).toBe(lookedUp.res.getHeader('RateLimit-Policy'))
  const assigned = (await table('entries', tenant)).map((row) => row.assigned_to)
  expect(assigned.filter((id) => id === second.id)).toHaveLength(assigned.length / 2)
})

test('leads of many accounts take one round trip together, and the second of a day is refused alone', async () => {
  const tenants = await buildTenants(app, 8)
  const process = await practised(tenants)
  const calls = tenants.map((tenant) => process.callOf(tenant))
  const leads = await Promise.all(calls.map((call) => process.create(call)))
  expect(process.trips()).toBe(1)
  expect(process.foretold).toEqual([])
  for (const [n, tenant] of tenants.entries()) {
    expect(leads[n]!.assignedTo).toBe(tenant.telecaller.id)
    expect(await rowsOf(tenant, leads[n]!)).toMatchObject({ guards: [{}], notifications: [{ kind: 'NEW_LEAD' }] })
    expect(calls[n]!.res.getHeader('RateLimit')).toMatch(/^"crm";r=55;t=/)
  }
  const again = tenants.map((tenant, n) => (n === 3 ? { ...process.callOf(tenant), body: calls[3]!.body } : process.callOf(tenant))) // prettier-ignore
  const outcomes = await Promise.allSettled(again.map((call) => process.create(call)))
  expect(outcomes.map(({ status }) => status)).toEqual(tenants.map((_, n) => (n === 3 ? 'rejected' : 'fulfilled')))
  expect(outcomes[3]).toMatchObject({ reason: { code: 'duplicate_entry', extras: { leadId: leads[3]!.id } } })
  expect(process.first.filter((sql) => sql === 'ROLLBACK')).toHaveLength(1)
  for (const [n, tenant] of tenants.entries()) {
    expect(await countedCalls(app, tenant.account.id)).toBe(6)
    expect(await table('entries', tenant)).toHaveLength(n === 3 ? 5 : 6)
    expect(await table('events', tenant)).toHaveLength(n === 3 ? 5 : 6)
  }
})

/** What may change between two leads, and what the next one is then. */
const CHANGES: Record<string, { change: (tenant: Tenant) => PromiseLike<unknown>; then: object; calls?: number }> = {
  'the lab is inactive': {
    change: ({ lab }) => knex()('labs').where({ id: lab.id }).update({ active: false }),
    then: { reason: { code: 'lab_forbidden' } },
  },
  "the lab is another account's": {
    change: async ({ lab }) => {
      const [stranger] = await buildTenants(app, 1)
      await knex()('labs').where({ id: lab.id }).update({ account_id: stranger!.account.id })
    },
    then: { reason: { code: 'lab_forbidden' } },
  },
  'the account is party-scoped': {
    change: ({ account }) => knex()('accounts').where({ id: account.id }).update({ mode: 'party_scoped' }),
    then: { reason: { code: 'party_required' } },
  },
  'the account is gone': {
    change: ({ account }) => knex()('accounts').where({ id: account.id }).del(),
    then: { reason: { code: 'invalid_access_token' } },
  },
  'the account has spent its budget': {
    change: async (tenant) => {
      const now = (await app.database.readTimeMs()) * 1000
      const calls = packCalls(Array(CRM_CALLS).fill(now - 30_000_000))
      await table('crm_budgets', tenant).update({ calls })
    },
    then: { reason: { code: 'rate_limited' } },
  },
  'the account has no row of its calls': {
    change: (tenant) => table('crm_budgets', tenant).del(),
    then: { status: 'fulfilled' },
    calls: 2,
  },
  'the only telecaller is inactive': {
    change: (tenant) => table('telecallers', tenant).update({ active: false }),
    then: { value: { assignedTo: null } },
  },
  'leads are assigned by hand': {
    change: ({ account }) => setCrmSettings(app, account, { assignStrategy: 'manual' }),
    then: { value: { assignedTo: null } },
  },
  'the account has a custom field': {
    change: ({ account }) => setCrmSettings(app, account, { customFields: ['ward'] }),
    then: { value: { details: { customFields: { ward: '7' } } } },
  },
}

describe('where since then', () => {
  test.each(Object.entries(CHANGES))('%s, that counts', async (name, { change, then, calls }) => {
    const [tenant, neighbour] = (await buildTenants(app, 2)) as [Tenant, Tenant]
    const process = await practised([tenant, neighbour])
    await change(tenant)
    const fields = name === 'the account has a custom field' ? { customFields: { ward: '7' } } : {}
    const before = (await table('entries', tenant)).length
    const [outcome, other] = await Promise.allSettled([
      process.create(process.callOf(tenant, fields)),
      process.create(process.callOf(neighbour)),
    ])
    expect(outcome).toMatchObject(then)
    expect(other).toMatchObject({ value: { assignedTo: neighbour.telecaller.id } })
    const fresh = entryCalls(app)
    const [alone] = await Promise.allSettled([fresh.create(fresh.callOf(tenant, fields))])
    expect(alone).toMatchObject(then)
    const made = [outcome, alone].filter(({ status }) => status === 'fulfilled').length
    expect(await table('entries', tenant)).toHaveLength(before + made)
    expect(await table('events', tenant)).toHaveLength(before + made)
    if (calls !== undefined) expect(await countedCalls(app, tenant.account.id)).toBe(calls)
    expect(await table('entries', neighbour)).toHaveLength(5)
    expect(await countedCalls(app, neighbour.account.id)).toBe(5)
  })
})

test('a telecaller more gets a turn, and what another process assigned is not assigned again', async () => {
  const [tenant] = (await buildTenants(app, 1)) as [Tenant]
  const process = await practised([tenant])
  const second = await buildTelecaller(app, tenant.account)
  const third = await buildTelecaller(app, tenant.account)
  const elsewhere = entryCalls(app, other.batch)
  const assigned: (string | null)[] = []
  for (let n = 0; n < 18; n++) {
    const { create, callOf } = n % 4 === 1 ? elsewhere : process
    assigned.push((await create(callOf(tenant))).assignedTo)
  }
  const inOrder = [tenant.telecaller.id, second.id, third.id].sort()
  const first = inOrder.indexOf(tenant.telecaller.id) + 1
  expect(assigned).toEqual(assigned.map((_, n) => inOrder[(first + n) % 3]))
})

test('what was found of one lab is not taken for what another one was found with before', async () => {
  const [tenant] = (await buildTenants(app, 1)) as [Tenant]
  const second = await buildTelecaller(app, tenant.account)
  const inactive = (active: boolean) => knex()('telecallers').where({ id: second.id }).update({ active })
  await inactive(false)
  const process = await practised([tenant])
  const others = [{ ...tenant, lab: await buildLab(app, tenant.account) }, { ...tenant, lab: await buildLab(app, tenant.account) }] // prettier-ignore
  await inactive(true)
  for (const other of others) await process.create(process.callOf(other))
  await inactive(false)
  for (let n = 0; n < 8; n++) {
    const { assignedTo } = await process.create(process.callOf(n % 3 === 2 ? others[0]! : tenant))
    expect(assignedTo).toBe(tenant.telecaller.id)
  }
})

test('leads through several labs of an account take one round trip and its telecallers take turns', async () => {
  const [tenant] = (await buildTenants(app, 1)) as [Tenant]
  const second = await buildTelecaller(app, tenant.account)
  const process = await practised([tenant])
  const other = { ...tenant, lab: await buildLab(app, tenant.account) }
  const assigned = [(await process.create(process.callOf(other))).assignedTo]
  process.trips()
  for (let n = 0; n < 7; n++) assigned.push((await process.create(process.callOf([tenant, other][n % 2]!))).assignedTo)
  expect(process.trips()).toBe(7)
  expect(assigned.filter((id) => id === second.id)).toHaveLength(4)
})

test('an account whose budget somebody holds keeps the others waiting for one lock, not for two', async () => {
  const tenants = await buildTenants(app, 4)
  const process = await practised(tenants)
  const trx = await other.knex.transaction()
  await trx('crm_budgets').where({ account_id: tenants[0]!.account.id }).forUpdate().first()
  const [held, ...free] = tenants.map((tenant) => process.create(process.callOf(tenant)))
  held!.catch(() => {})
  for (const lead of await Promise.all(free)) expect(lead.id).toBeTruthy()
  expect(process.first).not.toContain('ROLLBACK')
  await trx.commit()
  expect((await held!).id).toBeTruthy()
  for (const tenant of tenants) expect(await countedCalls(app, tenant.account.id)).toBe(5)
})

test('while somebody holds the turns the others of its group do not wait, and it is made once they are free', async () => {
  const tenants = await buildTenants(app, 3)
  const process = await practised(tenants)
  const trx = await other.knex.transaction()
  await trx('telecaller_turns').where({ account_id: tenants[0]!.account.id }).forUpdate().first()
  const [held, ...free] = tenants.map((tenant) => process.create(process.callOf(tenant)))
  let hasEnded = false
  void held!.catch(() => {}).finally(() => (hasEnded = true))
  for (const lead of await Promise.all(free)) expect(lead.id).toBeTruthy()
  expect(hasEnded).toBe(false)
  await trx.commit()
  expect((await held!).assignedTo).toBe(tenants[0]!.telecaller.id)
  for (const tenant of tenants) expect(await countedCalls(app, tenant.account.id)).toBe(5)
})

test('many at once of one account take turns, and each counts', async () => {
  const [tenant] = (await buildTenants(app, 1)) as [Tenant]
  const second = await buildTelecaller(app, tenant.account)
  const process = await practised([tenant])
  const leads = await Promise.all(Array.from({ length: 24 }, () => process.create(process.callOf(tenant))))
  expect(leads.filter(({ assignedTo }) => assignedTo === second.id)).toHaveLength(12)
  expect(await countedCalls(app, tenant.account.id)).toBe(28)
})

test('one that names what belongs to its lab or account is looked up', async () => {
  const [tenant] = (await buildTenants(app, 1)) as [Tenant]
  const party = await buildParty(app, tenant.account, 'corporate')
  const process = await practised([tenant])
  const lead = await process.create(process.callOf(tenant, { corporateUser: party.id }))
  expect(process.trips()).toBe(2)
  expect(lead.corporateId).toBe(party.id)
  for (const fields of [{ assignedTo: tenant.telecaller.id }, { tests: [{ test: party.id, cost: 1 }] }]) {
    await process.create(process.callOf(tenant, fields)).catch(() => {})
    expect(process.trips()).toBeGreaterThan(1)
  }
})
