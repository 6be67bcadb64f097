/**
 * Leads around midnight of the account's zone, days with a change of the clocks among them. The database's clock decides what day
 * it is, so it is set (libfaketime), and the processes follow it.
 */
import { monotonicMs, processClock } from '../../src/clock.ts'
import type { Tenant } from '../bench/tenants.ts'
import { pause } from '../crash/crash-stage.ts'
import type { Answer } from '../crash/lead-client.ts'
import { prepare } from './at-once.ts'
import { clockChanges, dayIn, nextMidnight } from './local-days.ts'
import { newContact, type Race, type RaceOptions, type RaceWorld } from './race-world.ts'
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
/** In milliseconds from midnight. The first and the last are so far from it that nobody's clock can be on the other side. */
const SURELY_MS = 900
const NEAR_MS = 12
const NEAR_CALLS = 6
/** Until every process has seen that the database's clock was set, with room on a busy machine. */
const FOLLOWED_MS = 2500

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
}

/** All calls of a midnight, each sent when it is its time. @param midnightMs monotonic */
async function sendAll(world: RaceWorld, tenants: Tenant[], midnightMs: number, random: () => number): Promise<Sent[]> {
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
  const isLate = monotonicMs() > midnightMs - SURELY_MS
  if (isLate) throw new Error('the machine is too busy: the calls were not ready in time')
  return Promise.all(
    ready.map(async ({ send, ...wish }) => {
      await pause(midnightMs + wish.atMs - monotonicMs())
      return { ...wish, answer: await send() }
    }),
  )
}

async function judge(world: RaceWorld, tally: Tally, zone: string, midnightMs: number, sent: Sent[]): Promise<void> {
  const days = [dayIn(zone, midnightMs - 1), dayIn(zone, midnightMs)]
  for (const [contact, calls] of Map.groupBy(sent, (call) => call.contact)) {
    const where = `${zone} ${days[1]} ${contact}`
    const rows = await world.knex('entries').where({ account_id: calls[0]!.tenant.accountId, contact }).select('id', 'created_at') // prettier-ignore
    const created = rows.map((row) => [dayIn(zone, row.created_at.getTime()), row.id as string] as const).sort()
    const isOnePerDay = `${created.map(([day]) => day)}` === `${days}`
    tally.check(isOnePerDay, () => `${where}: entries of ${created.map(([day]) => day)}`)
    const won = calls.filter(({ answer }) => answer.status === 200)
    const ids = won.map(({ answer }) => answer.body.leadId as string).sort()
    tally.check(`${ids}` === `${created.map(([, id]) => id).sort()}`, () => `${where}: ${ids.length} answers of 200`)
    for (const { answer, atMs } of calls) {
      if (answer.status !== 409) continue
      const day = created.find(([, id]) => id === answer.body.error.leadId)?.[0]
      // Near midnight it depends on the process's clock which day it is; far from it, not.
      const known = atMs === -SURELY_MS ? [days[0]] : atMs === SURELY_MS ? [days[1]] : days
      tally.check(known.includes(day), () => `${where}: refused ${atMs} ms from midnight for an entry of ${day}`)
    }
    const first = Math.min(...rows.map(({ created_at: at }) => at.getTime()).filter((ms: number) => ms >= midnightMs))
    tally.least('first after midnight, ms', first - midnightMs)
    if (isOnePerDay && ids.length === 2) tally.add('pairs')
  }
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
      const tenants = await world.addTenants(ACCOUNTS, { timeZone: zone })
      // Whole seconds, so that midnight comes when all follow.
      clock.set(Math.floor((atMs - FOLLOWED_MS - SURELY_MS - processClock.nowMs()) / 1000))
      const leftMs = atMs - clock.offsetSeconds * 1000 - processClock.nowMs()
      const midnightMs = monotonicMs() + leftMs
      await pause(FOLLOWED_MS)
      const sent = await sendAll(world, tenants, midnightMs, random)
      tally.answers(
        sent.map(({ answer }) => answer),
        [200, 409],
      )
      await judge(world, tally, zone, atMs, sent)
      tally.add('midnights')
      if (isChange) tally.add('at a change of the clocks')
      if ((n + 1) % 5 === 0) say(`M3: ${n + 1} of ${midnights.length} midnights`)
    }
    const pairs = midnights.length * ACCOUNTS * CONTACTS
    tally.check(tally.get('pairs') === pairs, () => `${tally.get('pairs')} of ${pairs} pairs are one entry a day`)
  } finally {
    clock.set(0)
    await pause(FOLLOWED_MS)
  }
  return tally
}

export const MIDNIGHT_RACE: Race = { id: 'M3', title: 'around midnight each local day has one entry of a contact', run }
