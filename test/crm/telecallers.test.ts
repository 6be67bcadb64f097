/**
 * Proves of the specification:
 * - "phase `lead`: auto-assigned to a telecaller"; "phase `booking`: no auto-assign".
 * - "Auto-assign runs only when phase is `lead` and `assignedTo` is not set in the body; it follows the strategy configured
 *   in CRM settings."
 * - "A lead (enters a funnel, auto-assigned to a telecaller) or a confirmed booking (skips the funnel)."
 * And of the decisions: fair under concurrency; a refused call makes no telecaller step.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { COMMIT } from '../../db/batch.ts'
import type { Lab } from '../../src/catalogue/labs-repository.ts'
import { findEntryReferences } from '../../src/crm/entry-references-repository.ts'
import type { EntryRequest } from '../../src/crm/entry-rules.ts'
import type { Telecaller } from '../../src/crm/telecallers-repository.ts'
import { newId } from '../../src/ids.ts'
import { client, startTestApp, type TestApp } from '../support/app.ts'
import { countAudited } from '../support/audited.ts'
import {
  bookingBody,
  buildAccount,
  buildLab,
  buildOperatorKey,
  buildTelecaller,
  leadBody,
  newContact,
  setCrmSettings,
  type TestAccount,
} from '../support/builders.ts'

let app: TestApp
let otherApp: TestApp
let key: string

beforeAll(async () => {
  app = await startTestApp()
  otherApp = await startTestApp({ mysqlUrl: app.mysqlUrl })
  key = await buildOperatorKey(app)
})
afterAll(async () => {
  await otherApp.close()
  await app.close()
})

interface World {
  account: TestAccount
  lab: Lab
  /** In the order of their ids. */
  telecallers: Telecaller[]
}

async function buildWorld(count: number): Promise<World> {
  const account = await buildAccount(app)
  const telecallers: Telecaller[] = []
  for (let n = 0; n < count; n++) telecallers.push(await buildTelecaller(app, account))
  telecallers.sort((a, b) => (a.id < b.id ? -1 : 1))
  return { account, lab: await buildLab(app, account), telecallers }
}

const create = ({ account }: World, body: Record<string, unknown>, via = app) =>
  via.call('POST', '/client/crm/lead/create', { token: account.token, body })
const assigneeOf = async (leadId: string) =>
  (await app.database.knex('entries').where({ id: leadId }).first('assigned_to')).assigned_to as string | null
async function assign(world: World, fields: Record<string, unknown> = {}): Promise<string | null> {
  const { status, body } = await create(world, leadBody(world.lab, fields))
  expect(status).toBe(200)
  return assigneeOf(body.leadId)
}
const turnOf = async ({ account }: World) =>
  (await app.database.knex('telecaller_turns').where({ account_id: account.id }).first())?.last_telecaller_id
const deactivate = ({ account }: World, { id }: { id: string }) =>
  app.call('POST', `/operator/accounts/${account.id}/telecallers/${id}/deactivate`, { token: key })

describe('round robin, which holds where nothing was set,', () => {
  test('gives each telecaller a lead in turn', async () => {
    const world = await buildWorld(3)
    const [a, b, c] = world.telecallers.map(({ id }) => id)
    const got = []
    for (let n = 0; n < 7; n++) got.push(await assign(world))
    expect(got).toEqual([a, b, c, a, b, c, a])
  })

  test('leaves a lead unassigned where the account has no active telecaller', async () => {
    expect(await assign(await buildWorld(0))).toBeNull()
    const world = await buildWorld(1)
    await deactivate(world, world.telecallers[0]!)
    expect(await assign(world)).toBeNull()
  })

  test('goes on in turn without one who was deactivated, and takes up one who is new', async () => {
    const world = await buildWorld(3)
    const [a, b, c] = world.telecallers
    expect(await assign(world)).toBe(a!.id)
    for (let n = 0; n < 3; n++) expect((await deactivate(world, b!)).body.active).toBe(false)
    expect(await countAudited(app, 'deactivateTelecaller', b!.id)).toBe(1)
    expect([await assign(world), await assign(world), await assign(world)]).toEqual([c!.id, a!.id, c!.id])
    app.clock.advance(1)
    const late = await buildTelecaller(app, world.account)
    expect([await assign(world), await assign(world)]).toEqual([late.id, a!.id])
  })

  test('makes no step for a booking, for a lead that names its telecaller, or for a refused call', async () => {
    const world = await buildWorld(3)
    const [a, b, c] = world.telecallers
    const contact = newContact()
    expect(await assign(world, { contact })).toBe(a!.id)
    const booking = await create(world, bookingBody(world.lab))
    expect(await assigneeOf(booking.body.leadId)).toBeNull()
    expect(await assign(world, { assignedTo: c!.id })).toBe(c!.id)
    const refused = [
      await create(world, leadBody(world.lab, { contact })),
      await create(world, leadBody(world.lab, { first_name: '' })),
      await create(world, leadBody(world.lab, { branchID: 'x' })),
      await create(world, leadBody(world.lab, { tests: [{ test: 'x' }] })),
    ]
    expect(refused.map(({ status }) => status)).toEqual([409, 400, 403, 400])
    expect([await turnOf(world), await assign(world)]).toEqual([a!.id, b!.id])
  })

  test('is fair when 64 leads and as many duplicates come at once through two processes', async () => {
    const world = await buildWorld(7)
    const bodies = Array.from({ length: 64 }, () => leadBody(world.lab))
    const both = bodies.flatMap((body) => [create(world, body, app), create(world, body, otherApp)])
    const answers = await Promise.all(both)
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(64)
    expect(answers.filter(({ status }) => status === 409)).toHaveLength(64)
    const ids = answers.filter(({ status }) => status === 200).map(({ body }) => body.leadId)
    const counts = new Map(world.telecallers.map(({ id }) => [id, 0]))
    for (const assignee of await Promise.all(ids.map(assigneeOf))) counts.set(assignee!, counts.get(assignee!)! + 1)
    expect([...counts.values()].reduce((sum, n) => sum + n, 0)).toBe(64)
    expect(Math.max(...counts.values()) - Math.min(...counts.values())).toBeLessThanOrEqual(1)
    // Cyclic by commit: 64 is 9 rounds of 7 and one more, so the first has one more and its turn was the last.
    expect([counts.get(world.telecallers[0]!.id), await turnOf(world)]).toEqual([10, world.telecallers[0]!.id])
  })

  test('stays fair when one telecaller is deactivated midway, and gives that one nothing once that is answered', async () => {
    const world = await buildWorld(7)
    const removed = world.telecallers[3]!
    const countOf = async (id: string) => Number((await counts()).get(id) ?? 0)
    const counts = async () => {
      const rows = await app.database
        .knex('entries')
        .where({ account_id: world.account.id })
        .groupBy('assigned_to')
        .select('assigned_to')
        .count<{ assigned_to: string; n: number }[]>({ n: '*' })
      return new Map(rows.map((row) => [row.assigned_to, Number(row.n)]))
    }
    const leads = Array.from({ length: 128 }, (_, n) =>
      create(world, leadBody(world.lab), n % 2 === 0 ? app : otherApp),
    )
    await Promise.race(leads.slice(30))
    expect((await deactivate(world, removed)).status).toBe(200)
    const had = await countOf(removed.id)
    expect((await Promise.all(leads)).every(({ status }) => status === 200)).toBe(true)
    const after = await counts()
    expect(after.get(removed.id) ?? 0).toBe(had)
    const rest = world.telecallers.filter(({ id }) => id !== removed.id).map(({ id }) => after.get(id)!)
    expect(rest.reduce((sum, n) => sum + n, had)).toBe(128)
    expect(Math.max(...rest) - Math.min(...rest)).toBeLessThanOrEqual(1)
  })
})

describe('least open', () => {
  test('gives a lead to the telecaller with the fewest leads that are not yet bookings, else in turn', async () => {
    const world = await buildWorld(3)
    const [a, b, c] = world.telecallers.map(({ id }) => id)
    await setCrmSettings(app, world.account, { assignStrategy: 'least_open' })
    for (const assignedTo of [a, a, b, b, b, c]) await assign(world, { assignedTo })
    expect([await assign(world), await assign(world)]).toEqual([c, a])
    // Two become bookings, as staff do it.
    const converted = await app.database.knex('entries').where({ assigned_to: b }).limit(2).select('id')
    await app.database
      .knex('entries')
      .whereIn(
        'id',
        converted.map(({ id }) => id),
      )
      .update({ phase: 'booking' })
    expect([await assign(world), await assign(world)]).toEqual([b, c])
  })

  test('is even when 64 leads come at once through two processes', async () => {
    const world = await buildWorld(5)
    await setCrmSettings(app, world.account, { assignStrategy: 'least_open' })
    await Promise.all(
      Array.from({ length: 64 }, (_, n) => create(world, leadBody(world.lab), n % 2 === 0 ? app : otherApp)),
    )
    const rows = await app.database
      .knex('entries')
      .where({ account_id: world.account.id })
      .groupBy('assigned_to')
      .count({ n: '*' })
    expect(rows.map(({ n }) => Number(n)).sort()).toEqual([12, 13, 13, 13, 13])
  })
})

test('manual leaves every lead unassigned unless it names a telecaller', async () => {
  const world = await buildWorld(2)
  await setCrmSettings(app, world.account, { assignStrategy: 'manual' })
  expect(await assign(world)).toBeNull()
  expect(await assign(world, { assignedTo: world.telecallers[1]!.id })).toBe(world.telecallers[1]!.id)
})

describe('assignedTo', () => {
  test('that is unknown, inactive or of another account is 400 naming it, for leads and bookings alike', async () => {
    const world = await buildWorld(2)
    const foreign = await buildWorld(1)
    const inactive = world.telecallers[1]!
    await deactivate(world, inactive)
    for (const assignedTo of [newId(0), inactive.id, foreign.telecallers[0]!.id, 'x', '', `${inactive.id} `]) {
      for (const body of [leadBody(world.lab, { assignedTo }), bookingBody(world.lab, { assignedTo })]) {
        const { status, body: answer } = await create(world, body)
        expect([status, answer.error.code]).toEqual([400, 'unknown_telecaller'])
        expect(answer.error.details).toBe(`unknown telecaller ${assignedTo}`)
        expect(answer.error.fields).toEqual([{ field: 'assignedTo', message: 'is unknown' }])
      }
    }
  })

  test('names one whose deactivation waits until the entry is written: none is assigned once it is answered', async () => {
    const world = await buildWorld(1)
    const [telecaller] = world.telecallers
    let deactivation: ReturnType<typeof deactivate> | undefined
    let isAnswered = false
    await app.database.batch.transaction(async (send) => {
      const body = leadBody(world.lab, { assignedTo: telecaller!.id }) as EntryRequest
      expect(await findEntryReferences(send, { accountId: world.account.id, body })).toMatchObject({ assigneeIsActive: true }) // prettier-ignore
      deactivation = deactivate(world, telecaller!)
      void deactivation.then(() => (isAnswered = true))
      await new Promise((resolve) => setTimeout(resolve, 300))
      expect(isAnswered).toBe(false)
      await send([COMMIT])
    })
    expect((await deactivation!).status).toBe(200)
  })

  test('is carried by lead.created, chosen automatically or by the caller', async () => {
    const world = await buildWorld(2)
    const [a, b] = world.telecallers
    const payloads = []
    for (const fields of [{}, { assignedTo: b!.id }]) {
      const { body } = await create(world, leadBody(world.lab, fields))
      const event = await app.database.knex('events').where({ subject_id: body.leadId }).first()
      const stored = await app.database.knex('event_bodies').where({ event_id: event.id }).first()
      payloads.push(JSON.parse(stored.body.toString('utf8')))
    }
    for (const payload of payloads) client.checkSchema('#/components/schemas/LeadCreatedEvent', payload)
    expect(payloads.map(({ data }) => data.lead.assignedTo)).toEqual([a!.id, b!.id])
  })
})

describe('the operator', () => {
  const path = ({ account }: World) => `/operator/accounts/${account.id}/telecallers`

  test('creates, lists and deactivates telecallers of an account, as often as it likes', async () => {
    const world = await buildWorld(0)
    const { status, body } = await app.call('POST', path(world), { token: key, body: { name: 'Meena Pawar', x: 1 } })
    expect([status, body]).toMatchObject([201, { accountId: world.account.id, name: 'Meena Pawar', active: true }])
    for (let n = 0; n < 2; n++) {
      const answer = await deactivate(world, { id: body.telecallerId })
      expect([answer.status, answer.body]).toEqual([200, { ...body, active: false }])
    }
    const listed = await app.call('GET', path(world), { token: key })
    expect(listed.body).toEqual({ telecallers: [{ ...body, active: false }], nextCursor: null })
  })

  test('gets one 404 for an account or a telecaller that is not there or not its own, and needs the admin role', async () => {
    const [world, foreign] = [await buildWorld(1), await buildWorld(1)]
    const bound = await buildOperatorKey(app, { accountId: world.account.id })
    expect((await app.call('GET', path(foreign), { token: bound })).status).toBe(404)
    expect((await deactivate(world, foreign.telecallers[0]!)).status).toBe(404)
    expect((await deactivate(world, { id: 'x' })).status).toBe(404)
    const staff = await buildOperatorKey(app, { role: 'staff' })
    expect((await app.call('GET', path(world), { token: staff })).status).toBe(403)
    expect(await assign(foreign)).toBe(foreign.telecallers[0]!.id)
  })
})

test('no attempt of this file was answered with a fault of ours', () => {
  expect([...app.logs(), ...otherApp.logs()].filter(({ status }) => Number(status) >= 500)).toEqual([])
})
