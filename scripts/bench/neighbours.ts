/**
 * `make bench-neighbours`: 200 webhooks with an event a second each, some of them ill in one of several ways. What their healthy
 * neighbours notice of it is the time from the event's request to the head of its receipt. Exit 1 when that is too much, or when
 * one is missing.
 *
 * `--seconds n`: of each mode, 30 by default; 1800 for the full form. `--modes a,b`: only these. `--control`: the same on a copy of
 * the code that has one budget of requests for all and does not tell slow webhooks apart; succeeds when that copy fails.
 */
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { cpus } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { DaemonHints } from '../../src/events/daemon-hints.ts'
import { newId } from '../../src/ids.ts'
import { StartFault } from '../processes.ts'
import { wholeNumber } from '../whole-number.ts'
import { BenchWorld } from './bench-world.ts'
import { delaysOf, sendEvents, untilReceived, type Delays } from './traffic.ts'
import { runControl } from './neighbours-control.ts'

const WEBHOOKS = 200
/** Before and after what is measured: connections open and code warm; the last receipts arrive. */
const WARM_UP_SECONDS = 3
const LAST_RECEIPTS_MS = 5000

const WORST_P99_MS = 1000
const WORST_FACTOR = 2
/** Twice a quiet p99 of a few milliseconds would be the scheduler's noise: below this nobody notices a neighbour. */
const UNNOTICED_MS = 200
/** The slowest of all: while a hundred that hang are not known as slow yet they hold what they have for as long as an attempt lasts. */
const WORST_MS = 3000
const WORST_BESIDE_A_HUNDRED_MS = 12_000

interface Mode {
  /** How many of the webhooks are ill. */
  ill: number
  endpoint(world: BenchWorld, n: number): string
  /** Events a second for each of them. */
  rate?: number
  /** Copies that wait for each when the clock starts. */
  backlog?: number
  worstMs: number
}

const healthy: Mode['endpoint'] = (world, n) => world.url(`ok/${n}`)

/** The name server is silent about `*.silent.example`. */
const MODES: Record<string, Mode> = {
  quiet: { ill: 0, endpoint: healthy, worstMs: WORST_MS },
  hang: { ill: 100, endpoint: (world, n) => world.url(`hang/${n}`), worstMs: WORST_BESIDE_A_HUNDRED_MS },
  slow: { ill: 100, endpoint: (world, n) => world.url(`slow/${n}`), worstMs: WORST_BESIDE_A_HUNDRED_MS },
  refuse: { ill: 100, endpoint: (_world, n) => `https://127.0.0.1:${REFUSING_PORT}/${n}`, worstMs: WORST_MS },
  dns: { ill: 100, endpoint: (_world, n) => `https://hook-${n}.silent.example/${n}`, worstMs: WORST_MS },
  'one-hangs': { ill: 1, rate: 50, endpoint: (world, n) => world.url(`hang/${n}`), worstMs: WORST_MS },
  backlog: { ill: 1, backlog: 100_000, endpoint: (world, n) => world.url(`busy/${n}`), worstMs: WORST_MS },
  flood: { ill: 50, endpoint: (world, n) => world.url(`flood/${n}`), worstMs: WORST_MS },
}

/** Reserved by IANA and used by nothing here. */
const REFUSING_PORT = 49_151

interface Result extends Delays {
  mode: string
  receipts: number
  missing: number
}

/** @returns each lab once, and the ill ones as often as their rate asks for, evenly among them */
function turnsOf(labIds: string[], isIll: (n: number) => boolean, rate: number): string[] {
  const ill = labIds.filter((_, n) => isIll(n))
  const more = Array.from({ length: rate - 1 }, () => ill).flat()
  const each = labIds.length / more.length
  return labIds.flatMap((labId, n) => [labId, ...more.slice(Math.ceil(n / each), Math.ceil((n + 1) / each))])
}

async function measure(world: BenchWorld, name: string, dnsServer: string, seconds: number): Promise<Result> {
  await world.clear()
  const { ill, endpoint, rate = 1, backlog = 0 } = MODES[name]!
  const isIll = (n: number) => n % 2 === 1 && n < 2 * ill
  const endpoints = Array.from({ length: WEBHOOKS }, (_, n) => (isIll(n) ? endpoint : healthy)(world, n))
  const labIds = endpoints.map(() => newId(world.clock.nowMs()))
  const webhookIds = await world.addWebhooks(endpoints, labIds)
  const backlogged = backlog > 0 ? webhookIds.filter((_, n) => isIll(n)) : []
  for (const webhookId of backlogged) await world.addWaitingCopies(webhookId, backlog)
  const daemon = await world.startDaemon({ DELIVERY_DNS_SERVERS: dnsServer })
  const hints = new DaemonHints(world.database.knex)
  try {
    const well = labIds.filter((_, n) => !isIll(n))
    await sendEvents(world, hints, well, WARM_UP_SECONDS)
    await untilReceived(world, well.length * WARM_UP_SECONDS)
    await world.resetReceiver()
    if (backlogged.length > 0) await world.makeDue(backlogged)
    await sendEvents(world, hints, turnsOf(labIds, isIll, rate), seconds)
    await sleep(LAST_RECEIPTS_MS)
  } finally {
    hints.close()
    // The ill ones' requests are still under way; nothing is to be learnt from waiting for them.
    daemon.kill('SIGKILL')
    await once(daemon, 'exit')
  }
  const { delays, receipts, busyReceipts } = await world.counts(true)
  if (backlog > 0) process.stderr.write(`bench: ${busyReceipts} of ${backlog} copies went out meanwhile\n`)
  return { mode: name, receipts, missing: (WEBHOOKS - ill) * seconds - receipts, ...delaysOf(delays) }
}

function report(results: Result[]): boolean {
  const quiet = results[0]!
  const limit = Math.min(WORST_P99_MS, Math.max(WORST_FACTOR * quiet.p99, UNNOTICED_MS))
  console.log(`${cpus().length} x ${cpus()[0]?.model}, Node ${process.version}`)
  console.log(`healthy webhooks: p99 at most ${limit.toFixed(0)} ms (twice the quiet one, at least ${UNNOTICED_MS} ms, at most ${WORST_P99_MS} ms)\n`) // prettier-ignore
  console.log(
    '| mode | ill | receipts | missing | p50 ms | p99 ms | max ms | at most | |\n|---|---|---|---|---|---|---|---|---|',
  )
  let good = true
  for (const { mode, receipts, missing, p50, p99, max } of results) {
    const { ill, worstMs } = MODES[mode]!
    const holds = missing === 0 && p99 <= (mode === 'quiet' ? WORST_P99_MS : limit) && max <= worstMs
    good &&= holds
    const cells = [ill, receipts, missing, ...[p50, p99, max, worstMs].map((ms) => ms.toFixed(0)), holds ? 'ok' : 'MISSED'] // prettier-ignore
    console.log(`| ${[mode, ...cells].join(' | ')} |`)
  }
  return good
}

async function main(): Promise<boolean> {
  const { values: options } = parseArgs({
    options: {
      seconds: { type: 'string', default: '30' },
      modes: { type: 'string' },
      control: { type: 'boolean' },
    },
  })
  if (options.control) return runControl(process.argv.slice(2).filter((argument) => argument !== '--control'))
  const seconds = wholeNumber('seconds', options.seconds, 1, 86_400)
  const ill = options.modes?.split(',') ?? Object.keys(MODES).slice(1)
  if (!ill.every((mode) => MODES[mode])) throw new StartFault(`--modes: they are ${Object.keys(MODES).join(', ')}`)
  const nameServer = createSocket('udp4')
  nameServer.bind(0, '127.0.0.1')
  await once(nameServer, 'listening')
  const world = await BenchWorld.open()
  const results: Result[] = []
  try {
    for (const mode of ['quiet', ...ill.filter((name) => name !== 'quiet')]) {
      process.stderr.write(`bench: ${mode}, ${seconds} s …\n`)
      results.push(await measure(world, mode, `127.0.0.1:${nameServer.address().port}`, seconds))
    }
  } finally {
    await world.close()
    nameServer.close()
  }
  return report(results)
}

main().then(
  (good) => process.exit(good ? 0 : 1),
  (error: Error) => {
    process.stderr.write(`bench: ${error instanceof StartFault ? error.message : error.stack}\n`)
    process.exit(1)
  },
)
