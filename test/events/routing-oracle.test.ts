/**
 * Who gets what, told twice: by the fan-out, and by an oracle written from the specification's delivery rules alone, over
 * random webhooks that come and go while random events are recorded and fanned out.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { isMessageType } from '../../src/events/message-payloads.ts'
import { EVENT_TYPES, type EventType } from '../../src/events/event-types.ts'
import { newId } from '../../src/ids.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { HandDaemon } from '../support/hand-daemon.ts'

const EVENTS = Number(process.env.ROUTING_EVENTS ?? 5000)
const SEED = Number(process.env.ROUTING_SEED ?? 42)
const AT_ONCE = 20

let db: TestDatabase
let world: DeliveryWorld

beforeAll(async () => {
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
})
afterAll(async () => {
  await world.close()
  await db.close()
})

let state = SEED
const pick = <T>(from: readonly T[]): T => from[(state = (state * 48271) % 2147483647) % from.length]!

interface Hook {
  id: string
  labId: string
  events: EventType[]
  party: string | null
  isCorporate: boolean
}

interface Fact {
  id: string
  type: EventType
  corporateId: string | null
  organizations: (string | null)[]
  /** Those of the lab that were active then. */
  active: Hook[]
}

/** Delivery rules 4 to 6 of the specification. */
function oracle({ type, corporateId, organizations, active }: Fact): Hook[] {
  const subscribed = active.filter(({ events }) => events.includes(type))
  const catchAll = subscribed.filter(({ party }) => party === null)
  const ofParties = subscribed.filter(
    ({ party, isCorporate }) => party !== null && (isCorporate ? party === corporateId : organizations.includes(party)),
  )
  if (!type.endsWith('.send')) return [...catchAll, ...ofParties]
  return catchAll.length > 0 ? catchAll : ofParties
}

const labs = [newId(200), newId(201), newId(202)]
const corporates = [newId(210), newId(211)]
const organizations = [newId(220), newId(221), newId(222)]
const types = EVENT_TYPES.filter((_, index) => index % 2 === 0)

async function register(): Promise<Hook> {
  const kind = pick(['none', 'corporate', 'organization', 'organization'] as const)
  const party = kind === 'none' ? null : pick(kind === 'corporate' ? corporates : organizations)
  const events = types.filter(() => pick([true, false, false]))
  if (events.length === 0) events.push(pick(types))
  const labId = pick(labs)
  const { id } = await world.webhook({
    endpoint: 'https://partner.example.com/',
    labId,
    events,
    ...(kind === 'corporate' ? { corporateId: party! } : {}),
    ...(kind === 'organization' ? { organizationId: party! } : {}),
  })
  return { id, labId, events, party, isCorporate: kind === 'corporate' }
}

async function record(active: Hook[]): Promise<Fact> {
  const [labId, type] = [pick(labs), pick(types)]
  const corporateId = pick([null, ...corporates])
  const [doctorId, hospitalId] = [pick([null, ...organizations]), pick([null, ...organizations])]
  const wish = { labId, corporateId, doctorId, hospitalId }
  const ofLab = active.filter((hook) => hook.labId === labId)
  const { id } = isMessageType(type) ? await world.message({ ...wish, type }) : await world.event({ ...wish, type })
  return { id, type, corporateId, organizations: [doctorId, hospitalId], active: ofLab }
}

/** Some of them, as hints do; a message is not routed so. @returns how many */
async function routeByName(daemon: HandDaemon, facts: Fact[]): Promise<number> {
  let routed = 0
  for (const { id, type } of facts) {
    if (pick([true, false])) continue
    const { events } = await daemon.routeHinted(id)
    expect(events).toBe(isMessageType(type) ? 0 : 1)
    routed += events
  }
  return routed
}

test(`an independent oracle agrees over ${EVENTS} random events and messages (seed ${SEED})`, async () => {
  const daemon = new HandDaemon(world)
  const facts: Fact[] = []
  let hinted = 0
  let active: Hook[] = []
  for (let n = 0; n < 12; n++) active.push(await register())
  while (facts.length < EVENTS) {
    const recorded = await Promise.all(Array.from({ length: AT_ONCE }, () => record(active)))
    facts.push(...recorded)
    if (pick([true, false])) hinted += await routeByName(daemon, recorded)
    if (pick([true, false])) await daemon.route(pick([7, 50, 500]))
    if (pick([true, false, false])) active = [...active, await register()]
    if (active.length > 8 && pick([true, false, false])) {
      const gone = pick(active)
      active = active.filter((hook) => hook !== gone)
      await world.deleteWebhook(gone.id, gone.labId)
    }
  }
  while ((await daemon.route()).events > 0);

  const { knex } = db.database
  const epochs = new Map((await knex('webhooks')).map(({ id, epoch }) => [id, epoch]))
  const copies = Map.groupBy(await knex('delivery_queue'), ({ event_id: id }) => id)
  const states = new Map((await knex('messages')).map(({ event_id: id, state }) => [id, state]))
  const stillActive = new Set(active.map(({ id }) => id))
  let normal = 0
  for (const fact of facts) {
    const expected = oracle(fact)
    const rows = copies.get(fact.id) ?? []
    expect(rows.map((row) => row.webhook_id).sort()).toEqual(expected.map(({ id }) => id).sort())
    // A copy that may be sent carries the epoch that its webhook has now.
    for (const row of rows) expect(row.epoch === epochs.get(row.webhook_id)).toBe(stillActive.has(row.webhook_id))
    if (!isMessageType(fact.type)) continue
    expect(states.get(fact.id)).toBe(expected.length > 0 ? 'offered' : 'normal')
    if (expected.length === 0) normal += 1
  }
  // Otherwise this has shown little.
  expect(normal).toBeGreaterThan(EVENTS / 500)
  expect(hinted).toBeGreaterThan(EVENTS / 10)
  expect(await knex('messages')).toHaveLength(facts.filter(({ type }) => isMessageType(type)).length)
}, 120_000)
