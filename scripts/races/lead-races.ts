/**
 * Leads and bookings of one account that come at the same moment with the same contact or e-mail: one a day is taken, and those
 * that are refused leave nothing behind.
 */
import type { Tenant } from '../bench/tenants.ts'
import type { Answer } from '../crash/lead-client.ts'
import { atOnce } from './at-once.ts'
import { newContact, type Race, type RaceOptions, type RaceWorld } from './race-world.ts'
import { accepted, Tally } from './tally.ts'

/** Of one account: its budget takes 60 of them. */
const CALLS = 64
const BUDGET = 60
const TELECALLERS = 7
const SPELLINGS: ((email: string) => string)[] = [
  (email) => email,
  (email) => ` ${email} `,
  (email) => email.toUpperCase(),
  (email) => `\t${email.replace('asha', 'Asha')}`,
  (email) => `${email.replace('.in', '.IN')} \t`,
]

interface Pair {
  contact: string
  email?: string
}

/** E-mails as they are compared. */
const plain = ({ email }: Pair) => email?.trim().toLowerCase()
const clash = (a: Pair, b: Pair) => a.contact === b.contact || (plain(a) !== undefined && plain(a) === plain(b))

const bodyOf = ({ labId }: Tenant, pair: Pair, isBooking: boolean) => ({
  branchID: labId,
  integratorID: 'CRM-1',
  first_name: 'Asha',
  ...pair,
  unmappedTests: [{ name: 'Serum bilirubin', cost: 120.5 }],
  ...(isBooking ? { phase: 'booking', bookingType: 'Home Collection', scheduledAt: '2027-01-02T07:30:00+05:30' } : {}),
})

const calls = (world: RaceWorld, tenant: Tenant, pairs: Pair[], isBooking: (n: number) => boolean) =>
  pairs.map((pair, n) => ({
    url: world.url(n),
    path: '/client/crm/lead/create',
    token: tenant.token,
    body: bodyOf(tenant, pair, isBooking(n)),
  }))

const KINDS: Record<string, (n: number, base: string) => Pair> = {
  'one contact': (_, base) => ({ contact: base }),
  'one e-mail': (n, base) => ({ contact: newContact(), email: SPELLINGS[n % SPELLINGS.length]!(`asha@${base}.in`) }),
  'both in turn': (n, base) =>
    n % 2 === 0 ? { contact: base, email: `${newContact()}@x.in` } : { contact: base, email: `a@${base}.in` },
}

/** (c1,e1) (c1,e2) (c2,e1), in turn. */
function crossing(): Pair[] {
  const [c1, c2] = [newContact(), newContact()]
  const three: Pair[] = [
    { contact: c1, email: `e1@${c1}.in` },
    { contact: c1, email: `E2@${c1}.in ` },
    { contact: c2, email: ` e1@${c1}.IN` },
  ]
  return Array.from({ length: CALLS }, (_, n) => three[n % three.length]!)
}

/** What the database has of an account. */
async function rowsOf({ knex }: RaceWorld, { accountId }: Tenant) {
  const [[row]] = await knex.raw(
    `SELECT (SELECT COUNT(*) FROM entries WHERE account_id = :a) AS entries,
      (SELECT COUNT(*) FROM entry_items i JOIN entries e ON e.id = i.entry_id WHERE e.account_id = :a) AS items,
      (SELECT COUNT(*) FROM entry_day_guards WHERE account_id = :a) AS guards,
      (SELECT COUNT(*) FROM events WHERE account_id = :a) AS events,
      (SELECT COUNT(*) FROM events e JOIN event_bodies b ON b.event_id = e.id WHERE e.account_id = :a) AS bodies,
      (SELECT COUNT(*) FROM staff_notifications WHERE account_id = :a) AS notifications,
      (SELECT last_telecaller_id FROM telecaller_turns WHERE account_id = :a) AS turn`,
    { a: accountId },
  )
  // The event of a refused one may have been written by itself: of no account, so over all.
  const [[loose]] = await knex.raw(
    `SELECT (SELECT COUNT(*) FROM event_bodies b LEFT JOIN events e ON e.id = b.event_id WHERE e.id IS NULL) +
      (SELECT COUNT(*) FROM unrouted_events u LEFT JOIN events e ON e.id = u.event_id WHERE e.id IS NULL) +
      (SELECT COUNT(*) FROM entry_items i LEFT JOIN entries e ON e.id = i.entry_id WHERE e.id IS NULL) AS n`,
  )
  return { ...row, loose: Number(loose.n) } as Record<string, number | string | null>
}

/** What those that were accepted, and nobody else, must have left. */
async function checkTraces(
  world: RaceWorld,
  tally: Tally,
  tenant: Tenant,
  taken: Pair[],
  leads: number,
  where: string,
) {
  const rows = await rowsOf(world, tenant)
  const { length } = taken
  const telecallers = await world.knex('telecallers').where({ account_id: tenant.accountId }).orderBy('id').pluck('id')
  const expected = {
    entries: length,
    items: length,
    guards: taken.reduce((sum, pair) => sum + (pair.email ? 2 : 1), 0),
    events: length,
    bodies: length,
    notifications: length,
    turn: leads === 0 ? null : telecallers[(leads - 1) % TELECALLERS],
    loose: 0,
  }
  const off = Object.entries(expected).filter(([name, value]) => rows[name] !== value)
  tally.check(off.length === 0, () => `${where}: ${off.map(([name, value]) => `${name}=${rows[name]} instead of ${value}`).join(', ')}`) // prettier-ignore
  const others = await world.count('entries', { account_id: tenant.accountId })
  tally.check(others === length, () => `${where}: ${others} entries for ${length} answers`)
}

/** No two that were accepted share anything, and whoever was refused shares it with one of them. */
function checkPairs(tally: Tally, pairs: Pair[], answers: Answer[], where: string): Pair[] {
  const won = pairs.filter((_, n) => answers[n]!.status === 200)
  const shared = won.filter((pair, n) => won.some((other, m) => m < n && clash(pair, other)))
  tally.check(won.length > 0 && shared.length === 0, () => `${where}: ${JSON.stringify(won)}`)
  const leads = new Map(won.map((pair, n) => [accepted(answers)[n]!.body.leadId as string, pair]))
  for (const [n, { status, body }] of answers.entries()) {
    if (status !== 409) continue
    const earlier = leads.get(body.error.leadId)
    tally.check(earlier !== undefined && clash(earlier, pairs[n]!), () => `${where}: 409 for ${body.error.leadId}`)
  }
  return won
}

async function runLeads(world: RaceWorld, { rounds, say }: RaceOptions): Promise<Tally> {
  const tally = new Tally()
  const kinds = Object.entries(KINDS)
  const tenants = await world.addTenants(rounds * (kinds.length + 1), { telecallers: TELECALLERS })
  for (let round = 0; round < rounds; round++) {
    for (const [kind, pairOf] of kinds) {
      const base = newContact()
      const pairs = Array.from({ length: CALLS }, (_, n) => pairOf(n, base))
      await runOne(world, tally, tenants.pop()!, pairs, round, kind, 1)
    }
    await runOne(world, tally, tenants.pop()!, crossing(), round, 'crossing pairs')
    tally.add('rounds')
    if ((round + 1) % 20 === 0) say(`M1: ${round + 1} of ${rounds} rounds`)
  }
  return tally
}

/** @param winners how many must be accepted, where that is known */
async function runOne(
  world: RaceWorld,
  tally: Tally,
  tenant: Tenant,
  pairs: Pair[],
  round: number,
  kind: string,
  winners?: number,
): Promise<void> {
  const where = `${kind}, round ${round}`
  // Bookings take no telecaller's turn, and so meet at other rows than leads do.
  const isBooking = (n: number) => round % 3 === 1 || (round % 3 === 2 && n % 2 === 1)
  const answers = await atOnce(calls(world, tenant, pairs, isBooking))
  const counts = tally.answers(answers, [200, 409, 429])
  const counted = (counts[200] ?? 0) + (counts[409] ?? 0)
  tally.check(counted === BUDGET, () => `${where}: ${counted} were counted`)
  if (winners) tally.check(counts[200] === winners, () => `${where}: ${counts[200]} were accepted`)
  const won = checkPairs(tally, pairs, answers, where)
  const leads = answers.filter(({ status }, n) => status === 200 && !isBooking(n)).length
  await checkTraces(world, tally, tenant, won, leads, where)
}

/** One is there; whatever comes at the same moment is refused, and the database is as it was. */
async function runRefused(world: RaceWorld, { rounds, say }: RaceOptions): Promise<Tally> {
  const tally = new Tally()
  const tenants = await world.addTenants(rounds, { telecallers: TELECALLERS })
  for (let round = 0; round < rounds; round++) {
    const tenant = tenants[round]!
    const where = `round ${round}`
    const taken = { contact: newContact(), email: `first@${round}.in` }
    const isBooking = (n: number) => n % 2 === 1
    const first = await world.alone({ ...calls(world, tenant, [taken], () => false)[0]! })
    const before = await rowsOf(world, tenant)
    const fresh = newContact()
    const pairs = Array.from({ length: CALLS }, (_, n): Pair => {
      if (n % 3 === 0) return { contact: taken.contact, email: `other@${fresh}.in` }
      return n % 3 === 1 ? { contact: fresh, email: ` FIRST@${round}.in` } : taken
    })
    const answers = await atOnce(calls(world, tenant, pairs, isBooking))
    const left = BUDGET - 1
    tally.exactly(answers, { 409: left, 429: CALLS - left }, where)
    for (const { status, body } of answers) {
      if (status === 409) tally.check(body.error.leadId === first.body.leadId, () => `${where}: ${body.error.leadId}`)
    }
    const after = await rowsOf(world, tenant)
    const changed = Object.keys(before).filter((name) => before[name] !== after[name])
    tally.check(changed.length === 0, () => `${where}: changed ${changed.join(', ')}`)
    await checkTraces(world, tally, tenant, [taken], 1, where)
    tally.add('rounds')
    if ((round + 1) % 20 === 0) say(`M2: ${round + 1} of ${rounds} rounds`)
  }
  return tally
}

export const LEAD_RACES: Race[] = [
  { id: 'M1', title: 'of leads at once that share a contact or an e-mail one is taken', run: runLeads },
  { id: 'M2', title: 'leads at once that are refused leave nothing behind', run: runRefused },
]
