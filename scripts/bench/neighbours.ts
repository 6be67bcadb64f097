/**
 * `make bench-neighbours`: 200 webhooks with an event a second each, 100 of them ill in one of four ways. What their healthy
 * neighbours notice of it is the time from the event's request to the head of its receipt. Exit 1 when that is too much.
 *
 * `--seconds n`: of each mode, 30 by default. `--modes a,b`: only these. `--control`: the same on a copy of the code that has
 * one budget of requests for all and does not tell slow webhooks apart; succeeds when that copy fails.
 */
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { cpus } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { DaemonHints } from '../../src/events/daemon-hints.ts'
import { newId } from '../../src/ids.ts'
import { BenchWorld } from './bench-world.ts'
import { delaysOf, sendEvents, untilReceived, type Delays } from './traffic.ts'
import { runControl } from './neighbours-control.ts'

const WEBHOOKS = 200
const DEFAULT_SECONDS = 30
/** Before and after what is measured: connections open and code warm; the last receipts arrive. */
const WARM_UP_SECONDS = 3
const LAST_RECEIPTS_MS = 5000

const WORST_P99_MS = 1000
const WORST_FACTOR = 2
/** Twice a quiet p99 of a few milliseconds would be the scheduler's noise: below this nobody notices a neighbour. */
const UNNOTICED_MS = 200

/** Endpoints of the ill half. The name server is silent about `*.silent.example`. */
const MODES: Record<string, (world: BenchWorld, n: number) => string> = {
  quiet: (world, n) => world.url(`ok/${n}`),
  hang: (world, n) => world.url(`hang/${n}`),
  slow: (world, n) => world.url(`slow/${n}`),
  refuse: (_world, n) => `https://127.0.0.1:${REFUSING_PORT}/${n}`,
  dns: (_world, n) => `https://hook-${n}.silent.example/${n}`,
}

/** Reserved by IANA and used by nothing here. */
const REFUSING_PORT = 49_151

interface Result extends Delays {
  mode: string
  receipts: number
  missing: number
}

async function measure(world: BenchWorld, mode: string, dnsServer: string, seconds: number): Promise<Result> {
  await world.clear()
  const endpoints = Array.from({ length: WEBHOOKS }, (_, n) => (n % 2 ? MODES[mode]!(world, n) : world.url(`ok/${n}`)))
  const labIds = endpoints.map(() => newId(world.clock.nowMs()))
  await world.addWebhooks(endpoints, labIds)
  const daemon = await world.startDaemon({ DELIVERY_DNS_SERVERS: dnsServer })
  const hints = new DaemonHints(world.database.knex)
  try {
    const healthy = labIds.filter((_, n) => n % 2 === 0)
    await sendEvents(world, hints, healthy, WARM_UP_SECONDS)
    await untilReceived(world, healthy.length * WARM_UP_SECONDS)
    await world.resetReceiver()
    await sendEvents(world, hints, labIds, seconds)
    await sleep(LAST_RECEIPTS_MS)
  } finally {
    hints.close()
    // The ill half's requests are still under way; nothing is to be learnt from waiting for them.
    daemon.kill('SIGKILL')
    await once(daemon, 'exit')
  }
  const { delays, receipts } = await world.counts(true)
  const expected = (mode === 'quiet' ? WEBHOOKS : WEBHOOKS / 2) * seconds
  return { mode, receipts, missing: expected - receipts, ...delaysOf(delays) }
}

function report(results: Result[]): boolean {
  const quiet = results[0]!
  const limit = Math.min(WORST_P99_MS, Math.max(WORST_FACTOR * quiet.p99, UNNOTICED_MS))
  console.log(`${cpus().length} x ${cpus()[0]?.model}, Node ${process.version}`)
  console.log(`healthy webhooks: p99 at most ${limit.toFixed(0)} ms (twice the quiet one, at least ${UNNOTICED_MS} ms, at most ${WORST_P99_MS} ms)\n`) // prettier-ignore
  console.log(
    '| the other 100 webhooks | receipts | missing | p50 ms | p99 ms | max ms | |\n|---|---|---|---|---|---|---|',
  )
  let good = true
  for (const { mode, receipts, missing, p50, p99, max } of results) {
    const holds = missing === 0 && p99 <= (mode === 'quiet' ? WORST_P99_MS : limit)
    good &&= holds
    const cells = [receipts, missing, ...[p50, p99, max].map((ms) => ms.toFixed(0)), holds ? 'ok' : 'MISSED']
    console.log(`| ${[mode, ...cells].join(' | ')} |`)
  }
  return good
}

async function main(): Promise<boolean> {
  const { values: options } = parseArgs({
    options: { seconds: { type: 'string' }, modes: { type: 'string' }, control: { type: 'boolean' } },
  })
  if (options.control) return runControl(process.argv.slice(2).filter((argument) => argument !== '--control'))
  const seconds = Number(options.seconds ?? DEFAULT_SECONDS)
  const ill = options.modes?.split(',') ?? Object.keys(MODES).slice(1)
  if (!ill.every((mode) => MODES[mode])) throw new Error(`the modes are ${Object.keys(MODES).join(', ')}`)
  const nameServer = createSocket('udp4')
  nameServer.bind(0, '127.0.0.1')
  await once(nameServer, 'listening')
  const world = await BenchWorld.open()
  const results: Result[] = []
  try {
    for (const mode of ['quiet', ...ill]) {
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
    process.stderr.write(`bench: ${error.stack}\n`)
    process.exit(1)
  },
)
