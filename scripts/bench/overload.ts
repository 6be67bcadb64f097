/**
 * `make bench-overload`: three times the calls that the API can answer, for a while. It must refuse what is too much with 503 and
 * `Retry-After`, and go on with the rest.
 *
 *     node scripts/bench/overload.ts [--seconds 30] [--seed 1] [--times 3] [--from 200]
 *
 * Steps up (a third more each, from `--from` calls a second) until the p99 of the answers is over half a second; the step before
 * is what the API can carry. Leads and lists of webhooks are sent on a fixed schedule and timed by it, by so many accounts that
 * none meets its limit of CRM calls.
 *
 * Refusals have the error shape and `Retry-After`; accepted calls are answered within two seconds (p99); what is accepted
 * is stored and delivered once, and nothing that was refused; `/livez` answers all the time; the API's memory stays below 300 MB;
 * within 30 s after it all is as before. Exit 1 when one is off.
 */
import type { ChildProcess } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { get } from 'node:http'
import { cpus } from 'node:os'
import { parseArgs } from 'node:util'
import { monotonicMs } from '../../src/clock.ts'
import { usableArguments, wholeNumber } from '../whole-number.ts'
import { BenchWorld } from './bench-world.ts'
import { Load } from './load.ts'
import { untilRecorded } from './receipts.ts'
import { addTenants, addTenantWebhooks, tenantsFor } from './tenants.ts'
import { delaysOf } from './traffic.ts'

const KNEE_P99_MS = 500
const ACCEPTED_P99_MS = 2000
const NORMAL_WITHIN_S = 30
const MOST_MB = 300
const LIVE_WITHIN_MS = 2000
const STEP = 1.35
const STEP_SECONDS = 3
const MOST_TIMES = 20
/** Of what was carried, to see whether all is as before. */
const QUIET_SHARE = 0.5
/** In the client: more at once than may wait. */
const CONNECTIONS = 3000
/** The client itself has to send in time what it sends: where it does not, the machine is too busy for this. */
const LATE_MS = 1000

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '30' },
    seed: { type: 'string', default: '1' },
    times: { type: 'string', default: '3' },
    from: { type: 'string', default: '200' },
  },
})
const [seconds, seed, times, from] = usableArguments('bench-overload', () =>
  (['seconds', 'seed', 'times', 'from'] as const).map((name) => wholeNumber(name, values[name], 1, 999_999)),
) as [number, number, number, number]
const say = (line: string) => process.stderr.write(`bench-overload: ${line}\n`)

/** Asks `/livez` twice a second, each time over a connection of its own, and looks at the memory. */
class Watch {
  asked = 0
  failed = 0
  slowestMs = 0
  mostMb = 0
  readonly #timer: NodeJS.Timeout

  constructor({ child, port }: { child: ChildProcess; port: number }) {
    this.#timer = setInterval(() => {
      this.mostMb = Math.max(this.mostMb, rssMb(child))
      void this.#ask(port)
    }, 500)
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  async #ask(port: number): Promise<void> {
    const startedAtMs = monotonicMs()
    this.asked += 1
    if (!(await isLive(port))) this.failed += 1
    this.slowestMs = Math.max(this.slowestMs, monotonicMs() - startedAtMs)
  }
}

function isLive(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const asked = get({ port, path: '/livez', agent: false, timeout: LIVE_WITHIN_MS }, (answer) => {
      answer.resume().on('end', () => resolve(answer.statusCode === 200))
    })
    asked.on('timeout', () => asked.destroy())
    asked.on('error', () => resolve(false))
  })
}

function rssMb({ pid }: ChildProcess): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1]) / 1024
}

class Overload {
  readonly #world: BenchWorld
  readonly #load: Load
  readonly #baseUrl: string
  readonly leadIds: string[] = []

  constructor(world: BenchWorld, load: Load, port: number) {
    this.#world = world
    this.#load = load
    this.#baseUrl = `http://127.0.0.1:${port}`
  }

  /** Accounts that have not called yet, enough for so many calls within a minute. */
  async useTenants(calls: number): Promise<void> {
    const tenants = await addTenants(this.#world, tenantsFor(calls) + 50)
    await addTenantWebhooks(this.#world, tenants)
    this.#load.use(tenants)
  }

  async send(ratePerSecond: number, forSeconds: number) {
    const count = Math.round(ratePerSecond * forSeconds)
    const baseUrls = [this.#baseUrl]
    const load = { what: 'mixed', connections: CONNECTIONS, seed, tells: true } as const
    const { statuses, delays, told } = await this.#load.ask({ ...load, baseUrls, count, ratePerSecond })
    this.leadIds.push(...told!.leadIds)
    return { statuses, told: told!, p99: delaysOf(delays).p99 }
  }

  /** @returns the highest rate that was carried. @throws when none was, or each */
  async findKnee(): Promise<number> {
    let carried: number | undefined
    for (let rate = from; rate < from * MOST_TIMES; rate *= STEP) {
      // A machine that has something else to do for a moment is not the end.
      if (!(await this.#isCarried(rate)) && !(await this.#isCarried(rate))) {
        if (carried === undefined) throw new Error(`not even ${from} calls a second are carried: lower --from`)
        return carried
      }
      carried = rate
    }
    throw new Error(`${carried} calls a second are carried, and maybe more: raise --from`)
  }

  async #isCarried(rate: number): Promise<boolean> {
    const { statuses, p99 } = await this.send(rate, STEP_SECONDS)
    say(`${rate.toFixed(0)}/s: p99 ${p99.toFixed(0)} ms, ${JSON.stringify(statuses)}`)
    return p99 <= KNEE_P99_MS && Object.keys(statuses).join() === '200'
  }

  /** @returns after how many seconds half of what was carried is answered in time again */
  async untilNormal(carried: number): Promise<number> {
    const startedAtMs = monotonicMs()
    for (;;) {
      const atSeconds = (monotonicMs() - startedAtMs) / 1000
      const { statuses, p99 } = await this.send(carried * QUIET_SHARE, 1)
      if (p99 <= KNEE_P99_MS && Object.keys(statuses).join() === '200') return atSeconds
      if (atSeconds > 2 * NORMAL_WITHIN_S) return Infinity
    }
  }
}

/** @returns the events there are, each of which has been received once */
async function untilDelivered(world: BenchWorld): Promise<number> {
  const [row] = await world.database.knex('events').count({ n: '*' })
  await untilRecorded(world, Number(row!.n))
  return Number(row!.n)
}

async function measure(world: BenchWorld, children: ChildProcess[], load: Load): Promise<boolean> {
  const api = await world.startApi()
  children.push(api.child, await world.startDaemon())
  const overload = new Overload(world, load, api.port)
  await overload.useTenants(from * STEP_SECONDS * 60)
  say('warming up …')
  await overload.send(from, 5)
  say('finding what is carried …')
  const carried = await overload.findKnee()
  await untilDelivered(world)
  const rate = carried * times
  await overload.useTenants(rate * Math.min(seconds, 60) + carried * NORMAL_WITHIN_S)
  const watch = new Watch(api)
  say(`${rate.toFixed(0)}/s for ${seconds} s …`)
  const { statuses, told } = await overload.send(rate, seconds)
  const normalAfter = await overload.untilNormal(carried)
  watch.stop()
  const delivered = await untilDelivered(world)
  const stored = new Set<string>(await world.database.knex('events').pluck('subject_id'))
  const lost = overload.leadIds.filter((id) => !stored.has(id)).length
  const inVain = stored.size - overload.leadIds.length + lost
  const accepted = delaysOf(told.acceptedDelays)
  const refusals = Object.entries(told.refusals).map(([code, { count }]) => `${code}=${count}`)
  console.log(`carried=${carried.toFixed(0)}/s sent=${rate.toFixed(0)}/s for ${seconds} s`)
  console.log(`answers=${JSON.stringify(statuses)} refused: ${refusals.join(' ')}`)
  for (const line of told.misshapen) console.log(`misshapen: ${line}`)
  const checks: [name: string, value: number, most: number][] = [
    ['lost', lost, 0],
    ['stored after a refusal', inVain, 0],
    ['refusals without their shape', told.misshapen.length, 0],
    ['nothing refused', told.refusals.overloaded ? 0 : 1, 0],
    ['accepted: p99 ms', accepted.p99, ACCEPTED_P99_MS],
    ['/livez not answered', watch.failed, 0],
    ['memory of the API, MB', watch.mostMb, MOST_MB],
    ['normal after s', normalAfter, NORMAL_WITHIN_S],
    ['sent late, ms', told.latestMs, LATE_MS],
  ]
  for (const [name, value, most] of checks) {
    console.log(`${value > most ? 'MISSED ' : ''}${name}=${value.toFixed(0)} (at most ${most})`)
  }
  console.log(`delivered once=${delivered}, accepted: p50=${accepted.p50.toFixed(0)} ms, /livez asked=${watch.asked}`)
  return checks.every(([, value, most]) => value <= most)
}

/** Rejects on a signal, so that everything that was started ends. */
function untilStopped(): Promise<never> {
  return new Promise((_, reject) => {
    for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => reject(new Error(`ended by ${signal}`)))
  })
}

async function main(): Promise<boolean> {
  console.log(`${cpus().length} x ${cpus()[0]?.model}, Node ${process.version}\n`)
  const stopped = untilStopped()
  // Looked at when there is something to end.
  stopped.catch(() => {})
  const world = await BenchWorld.open()
  const load = new Load([])
  const children: ChildProcess[] = []
  try {
    return await Promise.race([measure(world, children, load), stopped])
  } finally {
    for (const child of children) child.kill('SIGKILL')
    load.close()
    await world.close()
  }
}

main().then(
  (isRight) => process.exit(isRight ? 0 : 1),
  (error: Error) => {
    process.stderr.write(`bench-overload: ${error.stack}\n`)
    process.exit(1)
  },
)
