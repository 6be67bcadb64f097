/**
 * The budget of CRM calls over three processes: bursts, a random pace, a pace that is just allowed, a client that waits as it was
 * told, a process that is killed, a database's clock that is set back. Clients judge what they saw by clocks that never jump.
 */
import { monotonicMs } from '../../src/clock.ts'
import type { Tenant } from '../bench/tenants.ts'
import { pause } from '../crash/crash-stage.ts'
import type { Answer } from '../crash/lead-client.ts'
import { alone, atOnce } from './at-once.ts'
import type { Race, RaceOptions, RaceWorld } from './race-world.ts'
import { Tally } from './tally.ts'

const LIMIT = 60
const WINDOW_MS = 60_000
const BURST = 300
/** Of another account, in the middle of a burst. */
const NEIGHBOURS = 50
const NEIGHBOUR_EVERY = (BURST + NEIGHBOURS) / NEIGHBOURS
/** From a burst's end to the next: its calls are just out of the window. */
const BURST_EVERY_MS = 61_000
/** Between, as if the refusals were not heard. */
const HAMMER_MS = 250
const ALLOWED_PACE_MS = 1100
const KILL_AT = 0.3
const SET_BACK_AT = 0.6
const SET_BACK_SECONDS = -3600
/** After a clock was set back an account may be kept out for a window, and its next burst with it. */
const DISTURBED_MS = 2 * WINDOW_MS + 5000

interface Call {
  sentAtMs: number
  answeredAtMs: number
  status: number | null
}

interface Run {
  world: RaceWorld
  tally: Tally
  random: () => number
  endMs: number
  /** When the database's clock was set back. */
  setBackAtMs: number
}

const labs = (url: string, { token }: Tenant) => ({ url, path: '/client/labs', token })

let turn = 0

async function callOnce({ world }: Run, tenant: Tenant): Promise<Call & { answer: Answer }> {
  const sentAtMs = monotonicMs()
  const answer = await alone(labs(world.url(turn++), tenant))
  return { sentAtMs, answeredAtMs: monotonicMs(), status: answer.status, answer }
}

/**
 * A call is accepted somewhere between its sending and its answer: 61 of them that begin and end within a window are one too many.
 * @returns the most that were accepted in a window
 */
function checkWindows({ tally }: Run, name: string, calls: Call[]): number {
  const accepted = calls.filter(({ status }) => status === 200).sort((a, b) => a.sentAtMs - b.sentAtMs)
  let most = 0
  let closest = Infinity
  for (const [n, { sentAtMs }] of accepted.entries()) {
    const within = accepted.slice(n).filter(({ answeredAtMs }) => answeredAtMs - sentAtMs < WINDOW_MS)
    most = Math.max(most, within.length)
    // Of the calls from this one on, when the 61st was answered.
    const ends = accepted.slice(n).map(({ answeredAtMs }) => answeredAtMs).sort((a, b) => a - b) // prettier-ignore
    if (ends.length > LIMIT) closest = Math.min(closest, ends[LIMIT]! - sentAtMs)
  }
  tally.check(most <= LIMIT, () => `${name}: ${most} were accepted within ${WINDOW_MS / 1000} s`)
  tally.most(`most in a window (${name})`, most)
  if (closest < Infinity) tally.least(`61 took at least (${name}), ms`, Math.round(closest))
  return most
}

const isDisturbed = ({ setBackAtMs }: Pick<Run, 'setBackAtMs'>, atMs: number) =>
  atMs > setBackAtMs && atMs < setBackAtMs + DISTURBED_MS

/** 300 at once, which have 60 accepted, and calls of another account in their middle, which all have. */
export async function burst(
  run: Pick<Run, 'world' | 'tally' | 'setBackAtMs'>,
  tenant: Tenant,
  neighbour: Tenant,
): Promise<Call[]> {
  const { world, tally } = run
  const sentAtMs = monotonicMs()
  const isNeighbour = (n: number) => n % NEIGHBOUR_EVERY === 0
  const calls = Array.from({ length: BURST + NEIGHBOURS }, (_, n) =>
    labs(world.url(n), isNeighbour(n) ? neighbour : tenant),
  )
  const answers = await atOnce(calls)
  const own = answers.filter((_, n) => !isNeighbour(n))
  const others = answers.filter((_, n) => isNeighbour(n))
  tally.add('bursts')
  if (isDisturbed(run, sentAtMs)) tally.answers(own, [200, 429])
  else tally.exactly(own, { 200: LIMIT, 429: BURST - LIMIT }, 'a burst')
  tally.exactly(others, { 200: NEIGHBOURS }, 'calls of another account')
  for (const { status, headers } of own) {
    const seconds = Number(headers['retry-after'])
    const isTold = status !== 429 || (seconds >= 1 && seconds <= 60)
    tally.check(isTold, () => `Retry-After: ${headers['retry-after']}`)
  }
  const answeredAtMs = monotonicMs()
  return own.map(({ status }) => ({ sentAtMs, answeredAtMs, status }))
}

/** Bursts, between which an account goes on calling in vain: what is refused does not count. */
async function bursts(run: Run, tenant: Tenant, neighbours: Tenant[]): Promise<void> {
  const calls: Call[] = []
  for (let n = 0; monotonicMs() < run.endMs; n++) {
    const startedAtMs = monotonicMs()
    calls.push(...(await burst(run, tenant, neighbours[n % neighbours.length]!)))
    const endedAtMs = monotonicMs()
    // Until the first of the burst's own calls may be out of the window.
    while (monotonicMs() < startedAtMs + WINDOW_MS - 1000 && monotonicMs() < run.endMs) {
      const call = await callOnce(run, tenant)
      calls.push(call)
      run.tally.check(call.status !== 200, () => 'a call was accepted while the window was full')
      await pause(HAMMER_MS)
    }
    await pause(Math.min(endedAtMs + BURST_EVERY_MS, run.endMs) - monotonicMs())
  }
  checkWindows(run, 'bursts', calls)
}

/** Now a few at once, now one after the other, now slower than allowed. */
async function randomPace(run: Run, tenant: Tenant): Promise<void> {
  const calls: Awaited<ReturnType<typeof callOnce>>[] = []
  const underWay: Promise<unknown>[] = []
  const startMs = monotonicMs()
  while (monotonicMs() < run.endMs) {
    underWay.push(callOnce(run, tenant).then((call) => calls.push(call)))
    const slowest = Math.floor((monotonicMs() - startMs) / WINDOW_MS) % 2 === 0 ? 800 : 4000
    await pause(run.random() ** 3 * slowest)
  }
  await Promise.all(underWay)
  const answers = calls.map(({ answer }) => answer).filter(({ status }) => status !== null)
  run.tally.answers(answers, [200, 429])
  const most = checkWindows(run, 'random pace', calls)
  run.tally.check(most >= LIMIT, () => `at a random pace ${most} were accepted in a window: the limit was not reached`)
}

/** One call each 1.1 s is never refused. */
async function allowedPace(run: Run, tenant: Tenant): Promise<void> {
  for (let n = 0, startedAtMs = monotonicMs(); monotonicMs() < run.endMs; n++) {
    const { answer } = await callOnce(run, tenant)
    if (answer.status === null) run.tally.add('without an answer')
    else run.tally.exactly([answer], { 200: 1 }, 'one call each 1.1 s')
    await pause(startedAtMs + (n + 1) * ALLOWED_PACE_MS - monotonicMs())
  }
}

/** Calls until it is refused, and then waits as it was told: the next call is accepted, each time. */
async function obedient(run: Run, tenant: Tenant): Promise<void> {
  while (monotonicMs() < run.endMs) {
    const { answer, answeredAtMs } = await callOnce(run, tenant)
    if (answer.status !== 429) {
      await pause(run.random() * 400)
      continue
    }
    await pause(Number(answer.headers['retry-after']) * 1000)
    const again = await callOnce(run, tenant)
    // The clock that the wait was told by is no more: it may be told another one, of a window at most.
    if (answeredAtMs < run.setBackAtMs && again.sentAtMs > run.setBackAtMs) continue
    if (again.status === null) run.tally.add('without an answer')
    else run.tally.exactly([again.answer], { 200: 1 }, `after Retry-After: ${answer.headers['retry-after']}`)
    run.tally.add('waits as told')
  }
}

async function disturb(run: Run, say: (line: string) => void): Promise<void> {
  const startMs = monotonicMs()
  const at = (share: number) => pause(startMs + share * (run.endMs - startMs) - monotonicMs())
  await at(KILL_AT)
  await run.world.killOne(1)
  run.tally.add('kills')
  say('M7: a process was killed')
  if (!run.world.clock) return say("M7: the database's clock is not ours, and stays as it is")
  await at(SET_BACK_AT)
  run.setBackAtMs = monotonicMs()
  run.world.clock.set(run.world.clock.offsetSeconds + SET_BACK_SECONDS)
  run.tally.add('clock set back')
  say("M7: the database's clock was set back by an hour")
}

async function runBudgets(world: RaceWorld, { minutes, random, say }: RaceOptions): Promise<Tally> {
  const tally = new Tally()
  const [bursting, pacing, allowed, waiting, ...neighbours] = await world.addTenants(8)
  const run: Run = { world, tally, random, endMs: monotonicMs() + minutes * 60_000, setBackAtMs: Infinity }
  await Promise.all([
    bursts(run, bursting!, neighbours),
    randomPace(run, pacing!),
    allowedPace(run, allowed!),
    obedient(run, waiting!),
    disturb(run, say),
  ])
  return tally
}

export const BUDGET_RACE: Race = {
  id: 'M7',
  title: 'no 60 s have more than 60 CRM calls of an account, and 60 they may have',
  run: runBudgets,
}
