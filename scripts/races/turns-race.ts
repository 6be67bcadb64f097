/**
 * Leads of one account, shared among its telecallers in turn while one of them is deactivated and API processes are killed. The
 * account's budget of CRM calls is emptied meanwhile, as if time passed.
 */
import type { Tenant } from '../bench/tenants.ts'
import { pause } from '../crash/crash-stage.ts'
import type { Answer } from '../crash/lead-client.ts'
import { newContact, type Race, type RaceOptions, type RaceWorld } from './race-world.ts'
import { Tally } from './tally.ts'

const TELECALLERS = 7
const LEADS_A_ROUND = 35
const AT_ONCE = 20
/** With those under way below what an account may call in a minute. */
const FORGET_EVERY = 20
/** Of the leads. */
const REMOVED_AT = 0.5
const KILL_EVERY_MS = 4000

/** What a round robin must have done: turns in the order of their commits. */
function judgeTurns(tally: Tally, turns: string[], all: string[], removed: string): void {
  const rest = all.filter((id) => id !== removed)
  const last = turns.lastIndexOf(removed)
  const next = (ring: string[], id: string) => ring[(ring.indexOf(id) + 1) % ring.length]
  const breaks: number[] = []
  let isWhole = true
  for (let n = 1; n < turns.length; n++) {
    const [before, now] = [turns[n - 1]!, turns[n]!]
    if (isWhole && next(all, before) === now) continue
    // Once the removed one was passed over, it is for good. One who went right after its own turn has no place in the new ring.
    const follows = before === removed ? next(all, removed) : next(rest, before)
    if (n > last && follows === now) isWhole = false
    else breaks.push(n)
  }
  tally.check(breaks.length === 0, () => `out of turn at ${breaks.slice(0, 5)} of ${turns.length}`)
  // Where it was first passed over begins the other period.
  const firstWithout = turns.findIndex((id, n) => n > last && n > 0 && next(all, turns[n - 1]!) !== id)
  const border = firstWithout === -1 ? turns.length : firstWithout
  for (const [name, period, ring] of [
    ['before', turns.slice(0, border), all],
    ['after', turns.slice(border), rest],
  ] as const) {
    // prettier-ignore
    const counts = ring.map((id) => period.filter((turn) => turn === id).length)
    const spread = Math.max(...counts) - Math.min(...counts)
    tally.most(`spread ${name}`, spread)
    tally.check(spread <= 1, () => `${name} the removal: ${counts}`)
  }
}

async function run(world: RaceWorld, { rounds, random, say }: RaceOptions): Promise<Tally> {
  const tally = new Tally()
  const leads = rounds * LEADS_A_ROUND
  const [tenant] = (await world.addTenants(1, { telecallers: TELECALLERS })) as [Tenant]
  const { accountId } = tenant
  const all: string[] = await world.knex('telecallers').where({ account_id: accountId }).orderBy('id').pluck('id')
  const removed = all[Math.floor(random() * TELECALLERS)]!
  const forget = () => world.knex('crm_budgets').where({ account_id: accountId }).delete()
  const acknowledged = new Set<string>()
  let [sent, isOver] = [0, false]
  let hadAtRemoval = -1
  const removal = async () => {
    const path = `/operator/accounts/${accountId}/telecallers/${removed}/deactivate`
    // The process that is asked may be killed just then.
    let answer: Answer
    do answer = await world.call('POST', path, world.operatorKey)
    while (answer.status === null)
    tally.check(answer.status === 200, () => `deactivate: ${answer.status}`)
    hadAtRemoval = await world.count('entries', { account_id: accountId, assigned_to: removed })
  }
  let [removing, forgetting]: (Promise<unknown> | undefined)[] = []
  const sender = async () => {
    while (acknowledged.size < leads) {
      if (sent++ % FORGET_EVERY === 0) forgetting = forget()
      await forgetting
      if (acknowledged.size >= leads * REMOVED_AT) removing ??= removal()
      const body = { branchID: tenant.labId, integratorID: 'CRM-1', first_name: 'Asha', contact: newContact() }
      const answer = await world.call('POST', '/client/crm/lead/create', tenant.token, body)
      if (answer.status === null) tally.add('without an answer')
      else tally.answers([answer], [200])
      if (answer.status === 200) acknowledged.add(answer.body.leadId)
      if (answer.status === 200 && acknowledged.size % 1000 === 0) say(`M6: ${acknowledged.size} of ${leads} leads`)
    }
  }
  const killer = async () => {
    for (let n = 0; !isOver; n++) {
      await pause(KILL_EVERY_MS * random())
      if (isOver) return
      await world.killOne(n)
      tally.add('kills')
    }
  }
  const killing = killer()
  await Promise.all(Array.from({ length: AT_ONCE }, sender)).finally(() => (isOver = true))
  await killing
  await removing
  // The event is written under the lock of the turn, so that its time says whose commit came first.
  const rows = await world
    .knex('entries as e')
    .join('events as v', 'v.subject_id', 'e.id')
    .where({ 'e.account_id': accountId })
    .orderBy('v.recorded_at')
    .select('e.id', 'e.assigned_to')
  const missing = [...acknowledged].filter((id) => !rows.some((row) => row.id === id)).length
  tally.add('leads', rows.length)
  tally.add('lost', missing)
  tally.check(missing === 0, () => `${missing} leads were acknowledged and are not there`)
  const has = rows.filter((row) => row.assigned_to === removed).length
  tally.check(has === hadAtRemoval, () => `the removed one got ${has - hadAtRemoval} more after that was answered`)
  judgeTurns(
    tally,
    rows.map((row) => row.assigned_to),
    all,
    removed,
  )
  return tally
}

export const TURNS_RACE: Race = {
  id: 'M6',
  title: 'telecallers take turns, without one who is gone, whatever is killed',
  run,
}
