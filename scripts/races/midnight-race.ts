/**
 * Leads around midnight of the account's zone, days with a change of the clocks among them. The database's clock decides what day
 * it is, so it is set (libfaketime), and the processes follow it.
 */
import { monotonicMs, processClock } from '../../src/clock.ts'
import type { Tenant } from '../bench/tenants.ts'
import { pause } from '../crash/crash-stage.ts'
import type { FakeTime } from '../crash/fake-time.ts'
import type { Answer } from '../crash/lead-client.ts'
import { alone, prepare } from './at-once.ts'
import { clockChanges, dayIn, nextMidnight } from './local-days.ts'
import { newContact, PROCESSES, type Race, type RaceOptions, type RaceWorld } from './race-world.ts'
import { Tally } from './tally.ts'

/** Where the clocks change at night, at midnight, by half an hour, or never. */
const ZONES = [
  'Asia/Kolkata',
  'America/New_York',
  'Europe/Berlin',
  'Australia/Lord_Howe',
  'America/Havana',
  'America/Santiago',
  'Africa/Cairo',
  'Pacific/Kiritimati',
]
const DAY_MS = 86_400_000
/** Tokens live for longer. */
const HORIZON_MS = 900 * DAY_MS
/** Accounts at a midnight, and contacts of each that come on both sides of it: each contact is a pair. */
const ACCOUNTS = 4
const CONTACTS = 5
/** In milliseconds from midnight. The first and the last are so far from it that nobody's clock is on the other side. */
const SURELY_MS = 900
const NEAR_MS = 12
const NEAR_CALLS = 6
/** A process's clock differs from the database's by less. */
const UNSURE_MS = 400
/** From the setting of the clock to the first calls, at the first try; twice as long at each further one. */
const LEAD_MS = 3500
const LONGEST_LEAD_MS = 14_000
const LOOK_MS = 300
/** Then the calls are made ready: one that waits for its body for 14 s is closed. */
const READY_MS = 6000

/** Midnights in turn: of ordinary days, and those at both ends of a day on which the clocks change. */
function midnightsOf(random: () => number, count: number): { zone: string; atMs: number; isChange: boolean }[] {
  const nowMs = processClock.nowMs() + DAY_MS
  const changes = new Map(ZONES.map((zone) => [zone, clockChanges(zone, nowMs + DAY_MS, nowMs + HORIZON_MS)]))
  return Array.from({ length: count }, (_, n) => {
    const zone = ZONES[n % ZONES.length]!
    const ofZone = changes.get(zone)!
    const change = ofZone[Math.floor(random() * ofZone.length)]
    const isChange = change !== undefined && Math.floor(n / ZONES.length) % 2 === 0
    if (!isChange) return { zone, atMs: nextMidnight(zone, nowMs + Math.floor(random() * HORIZON_MS)), isChange }
    // A change may be a midnight itself.
    const before = nextMidnight(zone, change - DAY_MS)
    return { zone, atMs: random() < 0.5 ? before : nextMidnight(zone, before), isChange }
  })
}

interface Sent {
  tenant: Tenant
  contact: string
  /** From midnight. */
  atMs: number
  answer: Answer
  answeredAtMs: number
}

/**
 * All calls of a midnight, each sent when it is its time.
 * @param midnightMs monotonic
 * @returns undefined where the machine was too busy to have them ready in time
 */
async function sendAll(
  world: RaceWorld,
  tenants: Tenant[],
  midnightMs: number,
  random: () => number,
): Promise<Sent[] | undefined> {
  const near = () => (random() * 2 - 1) * NEAR_MS
  const times = () => [-SURELY_MS, -SURELY_MS, ...Array.from({ length: NEAR_CALLS }, near), SURELY_MS, SURELY_MS]
  const wishes = tenants.flatMap((tenant) =>
    Array.from({ length: CONTACTS }, newContact).flatMap((contact) =>
      times().map((atMs) => ({ tenant, contact, atMs })),
    ),
  )
  const ready = await Promise.all(
    wishes.map(async ({ tenant, contact, atMs }, n) => {
      const body = { branchID: tenant.labId, integratorID: 'CRM-1', first_name: 'Asha', contact }
      const call = { url: world.url(n), path: '/client/crm/lead/create', token: tenant.token, body }
      return { tenant, contact, atMs, send: await prepare(call) }
    }),
  )
  // They are ended all the same, on an account that nobody looks at.
  const isLate = monotonicMs() > midnightMs - SURELY_MS
  if (isLate) return void (await Promise.all(ready.map(({ send }) => send())))
  return Promise.all(
    ready.map(async ({ send, ...wish }) => {
      await pause(midnightMs + wish.atMs - monotonicMs())
      const answer = await send()
      return { ...wish, answer, answeredAtMs: monotonicMs() - midnightMs }
    }),
  )
}

/** @returns how many contacts came in time on both sides, and have an entry on each */
async function judge(world: RaceWorld, tally: Tally, zone: string, midnightMs: number, sent: Sent[]): Promise<number> {
  let pairs = 0
  const days = [dayIn(zone, midnightMs - 1), dayIn(zone, midnightMs)]
  for (const [contact, calls] of Map.groupBy(sent, (call) => call.contact)) {
    const where = `${zone} ${days[1]} ${contact}`
    const rows = await world.knex('entries').where({ account_id: calls[0]!.tenant.accountId, contact }).select('id', 'created_at') // prettier-ignore
    const created = rows.map((row) => [dayIn(zone, row.created_at.getTime()), row.id as string] as const).sort()
    const found = created.map(([day]) => day)
    // On a busy machine what was sent before midnight may be looked at behind it.
    const isInTime = calls.some((call) => call.answeredAtMs < -UNSURE_MS)
    const isOnePerDay = `${found}` === `${days}`
    tally.check(isOnePerDay || (!isInTime && `${found}` === days[1]), () => `${where}: entries of ${found}`)
    const won = calls.filter(({ answer }) => answer.status === 200)
    const ids = won.map(({ answer }) => answer.body.leadId as string).sort()
    tally.check(`${ids}` === `${created.map(([, id]) => id).sort()}`, () => `${where}: ${ids.length} answers of 200`)
    for (const { answer, atMs, answeredAtMs } of calls) {
      if (answer.status !== 409) continue
      const day = created.find(([, id]) => id === answer.body.error.leadId)?.[0]
      // Near midnight it depends on the process's clock which day it is; far from it, not.
      const known = answeredAtMs < -UNSURE_MS ? [days[0]] : atMs === SURELY_MS ? [days[1]] : days
      tally.check(known.includes(day), () => `${where}: refused ${atMs} ms from midnight for an entry of ${day}`)
    }
    const first = Math.min(...rows.map(({ created_at: at }) => at.getTime()).filter((ms: number) => ms >= midnightMs))
    tally.least('first after midnight, ms', first - midnightMs)
    if (isOnePerDay && ids.length === 2) pairs++
  }
  return pairs
}

/** Whether every process's clock is the database's: a booking says when it was confirmed. */
async function isFollowed(world: RaceWorld, { labId, token }: Tenant, offsetMs: number): Promise<boolean> {
  const looks = Array.from({ length: PROCESSES }, async (_, n) => {
    const booking = { phase: 'booking', bookingType: 'Lab Visit', scheduledAt: '2029-01-02T07:30:00Z' }
    const body = { branchID: labId, integratorID: 'CRM-1', first_name: 'Asha', contact: newContact(), ...booking }
    const sentAtMs = processClock.nowMs() + offsetMs
    const answer = await alone({ url: world.url(n), path: '/client/crm/lead/create', token, body })
    const answeredAtMs = processClock.nowMs() + offsetMs
    const itsMs = Date.parse(answer.body.convertedAt)
    return itsMs > sentAtMs - UNSURE_MS && itsMs < answeredAtMs + UNSURE_MS
  })
  return (await Promise.all(looks)).every(Boolean)
}

/** @returns undefined where the machine was too busy to have all in time */
async function meetAt(
  world: RaceWorld,
  clock: FakeTime,
  leadMs: number,
  zone: string,
  atMs: number,
  random: () => number,
): Promise<Sent[] | undefined> {
  const [watched, ...tenants] = await world.addTenants(1 + ACCOUNTS, { timeZone: zone })
  // Whole seconds.
  clock.set(Math.floor((atMs - leadMs - SURELY_MS - processClock.nowMs()) / 1000))
  const offsetMs = clock.offsetSeconds * 1000
  const midnightMs = monotonicMs() + atMs - offsetMs - processClock.nowMs()
  while (!(await isFollowed(world, watched!, offsetMs))) {
    if (monotonicMs() > midnightMs - SURELY_MS) return undefined
    await pause(LOOK_MS)
  }
  await pause(midnightMs - SURELY_MS - READY_MS - monotonicMs())
  return sendAll(world, tenants, midnightMs, random)
}

/** @throws when the machine is too busy for it, again and again */
async function runMidnight(
  world: RaceWorld,
  tally: Tally,
  clock: FakeTime,
  zone: string,
  atMs: number,
  random: () => number,
): Promise<void> {
  for (let leadMs = LEAD_MS; leadMs <= LONGEST_LEAD_MS; leadMs *= 2) {
    const sent = await meetAt(world, clock, leadMs, zone, atMs, random)
    if (!sent) continue
    tally.answers(
      sent.map(({ answer }) => answer),
      [200, 409],
    )
    const pairs = await judge(world, tally, zone, atMs, sent)
    tally.add('pairs', pairs)
    if (pairs === ACCOUNTS * CONTACTS || tally.faults.length > 0) return void tally.add('midnights')
  }
  throw new Error('the machine is too busy: the calls were not ready by midnight')
}

async function run(world: RaceWorld, { rounds, random, say }: RaceOptions): Promise<Tally> {
  const tally = new Tally()
  const { clock } = world
  if (!clock) {
    say(
      'M3: SKIPPED: it sets the database clock, which needs a private server and libfaketime (apt-get install libfaketime)',
    )
    tally.add('skipped')
    return tally
  }
  const midnights = midnightsOf(random, Math.ceil(rounds / ACCOUNTS))
  try {
    for (const [n, { zone, atMs, isChange }] of midnights.entries()) {
      await runMidnight(world, tally, clock, zone, atMs, random)
      if (isChange) tally.add('at a change of the clocks')
      if ((n + 1) % 5 === 0) say(`M3: ${n + 1} of ${midnights.length} midnights`)
    }
  } finally {
    clock.set(0)
    await pause(LEAD_MS)
  }
  return tally
}

export const MIDNIGHT_RACE: Race = { id: 'M3', title: 'around midnight each local day has one entry of a contact', run }
