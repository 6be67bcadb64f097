/**
 * Webhooks of one party that are registered, reactivated and deleted at the same moment: a party has one active webhook an event,
 * at most, and a catch-all account as many as it likes.
 */
import type { Tenant } from '../bench/tenants.ts'
import type { Answer } from '../crash/lead-client.ts'
import { atOnce, type RaceCall } from './at-once.ts'
import { autoDelete } from './auto-delete.ts'
import type { Race, RaceOptions, RaceWorld } from './race-world.ts'
import { accepted, Tally } from './tally.ts'

const CALLS = 64
const EVENTS = ['lead.created', 'booking.created', 'bill.created', 'report.completed', 'bill.send']
/** Webhooks to reactivate and to delete, in a round of all three. */
const KNOWN = 12

interface Stage {
  world: RaceWorld
  tally: Tally
  tenant: Tenant
  labID: string
  where: string
}

const subscribe = ({ world, tenant: { token, corporateId }, labID }: Stage, n: number, events: string[]): RaceCall => ({
  url: world.url(n),
  path: '/client/events/subscribe',
  token,
  body: {
    labID,
    events,
    endpoint: `https://lims.example.in/hooks/${n}`,
    protocol: 'https',
    corporateUser: corporateId,
  },
})

const change = ({ world, tenant, labID }: Stage, n: number, method: 'PATCH' | 'DELETE', id: string): RaceCall => ({
  url: world.url(n),
  method,
  path: `/client/events/${method === 'PATCH' ? 'reactivate' : 'delete'}Event/${id}?labID=${labID}&corporateUser=${tenant.corporateId}`,
  token: tenant.token,
})

/** Some of the events, in turned and in reverse order. */
function someEvents(n: number): string[] {
  const at = n % EVENTS.length
  const turned = [...EVENTS.slice(at), ...EVENTS.slice(0, at)].slice(0, 1 + (n % 3))
  return n % 2 === 0 ? turned : turned.toReversed()
}

/** One active webhook a party and event, and the guards are those of the active ones. @returns the active ones' events, each once */
async function checkGuards({ world, tally, labID, where }: Stage): Promise<string[]> {
  const active = await world
    .knex('webhook_events as e')
    .join('webhooks as w', 'w.id', 'e.webhook_id')
    .where({ 'w.lab_id': labID, 'w.state': 'active' })
    .select('e.event_type', 'w.id')
  const guards = await world.knex('webhook_party_guards').where({ lab_id: labID }).select('event_type', 'webhook_id')
  const text = (rows: Record<string, string>[], id: string) => rows.map((row) => `${row.event_type} ${row[id]}`).sort()
  const types = active.map((row) => row.event_type as string)
  tally.check(new Set(types).size === types.length, () => `${where}: two active webhooks for an event: ${types}`)
  tally.check(`${text(guards, 'webhook_id')}` === `${text(active, 'id')}`, () => `${where}: guards are not those of the active`) // prettier-ignore
  return types
}

async function oneEvent(stage: Stage): Promise<void> {
  const answers = await atOnce(Array.from({ length: CALLS }, (_, n) => subscribe(stage, n, ['lead.created'])))
  stage.tally.exactly(answers, { 200: 1, 409: CALLS - 1 }, stage.where)
  await checkGuards(stage)
}

async function overlapping(stage: Stage): Promise<void> {
  const { world, tally, labID, where } = stage
  const answers = await atOnce(Array.from({ length: CALLS }, (_, n) => subscribe(stage, n, someEvents(n))))
  tally.answers(answers, [200, 409])
  const won = accepted(answers).flatMap(({ body }) => body.data.events as string[])
  const active = await checkGuards(stage)
  tally.check(`${active.sort()}` === `${won.sort()}`, () => `${where}: ${active} for answers of ${won}`)
  for (const { status, body } of answers) {
    if (status !== 409) continue
    const clashing = String(body.error.details).split(' for ')[1]?.split(', ') ?? []
    const isReason = clashing.length > 0 && clashing.every((event) => won.includes(event))
    tally.check(isReason, () => `${where}: refused for ${clashing}, while ${won} were taken`)
  }
  const stored = await world.count('webhooks', { lab_id: labID })
  tally.check(stored === accepted(answers).length, () => `${where}: ${stored} webhooks are stored`)
}

async function allThree(stage: Stage, random: () => number): Promise<void> {
  const { world, tally, where } = stage
  const known: string[] = []
  // One after the other: each goes like a failing webhook, and leaves its events to the next.
  for (let n = 0; n < KNOWN; n++) {
    const { body } = await world.alone(subscribe(stage, n, someEvents(n)))
    known.push(body.data._id)
    await autoDelete(world.knex, world.arena.clock.now(), [body.data._id])
  }
  const kinds = Array.from({ length: CALLS }, (_, n) => n % 3)
  const ids = kinds.map(() => known[Math.floor(random() * KNOWN)]!)
  const calls = kinds.map((kind, n) =>
    kind === 0 ? subscribe(stage, n, someEvents(n)) : change(stage, n, kind === 1 ? 'PATCH' : 'DELETE', ids[n]!),
  )
  const answers = await atOnce(calls)
  tally.answers(answers, [200, 404, 409])
  await checkGuards(stage)
  const states = new Map<string, string>(
    (await world.knex('webhooks').whereIn('id', known).select('id', 'state')).map(({ id, state }) => [id, state]),
  )
  const of = (id: string, kind: number): Answer[] => answers.filter((_, n) => kinds[n] === kind && ids[n] === id)
  for (const id of known) {
    const [reactivations, deletions] = [accepted(of(id, 1)).length, accepted(of(id, 2)).length]
    tally.check(
      reactivations <= 1 && deletions <= 1,
      () => `${where}: reactivated ${reactivations}, deleted ${deletions} times`,
    )
    // Deleted is final, whatever came first.
    const expected = of(id, 2).length > 0 ? 'deleted' : reactivations > 0 ? 'active' : 'auto_deleted'
    tally.check(states.get(id) === expected, () => `${where}: ${states.get(id)} instead of ${expected}`)
  }
}

async function catchAll(stage: Stage): Promise<void> {
  const { world, tally, labID, where } = stage
  const answers = await atOnce(Array.from({ length: CALLS }, (_, n) => subscribe(stage, n, someEvents(n))))
  tally.exactly(answers, { 200: CALLS }, where)
  const active = await world.count('webhooks', { lab_id: labID, state: 'active' })
  tally.check(active === CALLS, () => `${where}: ${active} webhooks are active`)
}

async function run(world: RaceWorld, { rounds, random, say }: RaceOptions): Promise<Tally> {
  const tally = new Tally()
  const kinds = {
    'one event': oneEvent,
    'overlapping events': overlapping,
    'all three': allThree,
    'catch-all': catchAll,
  }
  const [scoped] = await world.addTenants(1, { mode: 'party_scoped' })
  const [open] = await world.addTenants(1)
  for (let round = 0; round < rounds; round++) {
    for (const [name, race] of Object.entries(kinds)) {
      const tenant = name === 'catch-all' ? open! : scoped!
      const [labID] = await world.addLabs(tenant.accountId, 1)
      await race({ world, tally, tenant, labID: labID!, where: `${name}, round ${round}` }, random)
    }
    tally.add('rounds')
    if ((round + 1) % 20 === 0) say(`M5: ${round + 1} of ${rounds} rounds`)
  }
  return tally
}

export const WEBHOOK_RACE: Race = {
  id: 'M5',
  title: 'a party has one active webhook an event, whatever comes at once',
  run,
}
