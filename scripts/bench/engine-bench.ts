/**
 * What the engine costs without deliveries: fanning out, and waiting.
 */
import { Ticker } from '../../daemon/ticker.ts'
import { monotonicMs } from '../../src/clock.ts'
import { createLogger } from '../../src/logger.ts'
import { cpuSeconds, type BenchWorld } from './bench-world.ts'

const MOST_MS = 60_000

/** Events fanned out per second, to one webhook each, by the loop of a daemon that has nothing to send. */
export async function fanOutRate(world: BenchWorld): Promise<number> {
  const events = 20_000
  await world.clear()
  await world.addWebhooks([world.url('ok/0')])
  await world.addEvents(events, true)
  const startedAtMs = monotonicMs()
  await new Promise<void>((resolve, reject) => {
    let waiting = events
    const timer = setTimeout(() => reject(new Error(`${waiting} events still wait after ${MOST_MS} ms`)), MOST_MS)
    const ticker = new Ticker({
      database: world.database,
      clock: world.clock,
      log: createLogger('daemon', 'silent'),
      owns: () => true,
      offer: () => {},
      leftAlone: () => [],
      chooseAlong: () => undefined,
      chooseAnyAlong: () => undefined,
      takenEarly: () => {},
      confirmed: () => {},
      routed: ({ eventIds }) => {
        waiting -= eventIds.length
        if (waiting > 0) return
        clearTimeout(timer)
        ticker.stop().then(resolve, reject)
      },
      messagesDue: () => {},
      recovering: () => {},
    })
    ticker.start()
  })
  const rate = (events / (monotonicMs() - startedAtMs)) * 1000
  const n = (await world.database.knex('delivery_queue').count({ n: '*' }))[0]?.n
  if (Number(n) !== events) throw new Error(`${n} deliveries of ${events}`)
  return rate
}

/** Of a core. */
const QUIET_SHARE = 0.05
/** By then what a start needs is compiled, and what it has left behind is cleared up. */
const SETTLED_MS = 6500

/** The share of a core that an idle daemon takes with so many webhooks, in per cent: of one that has been up for a while. */
export async function idleShare(world: BenchWorld, webhooks: number): Promise<number> {
  const seconds = 5
  await world.clear()
  await world.addWebhooks(Array.from({ length: webhooks }, (_, n) => world.url(`ok/${n}`)))
  const daemon = await world.startDaemon()
  await new Promise((resolve) => setTimeout(resolve, SETTLED_MS))
  await databaseQuiet(world)
  const before = await cpuSeconds(daemon.pid!)
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000))
  const share = ((await cpuSeconds(daemon.pid!)) - before) / seconds
  await world.stopDaemon(daemon)
  return share * 100
}

/** What the rows before have left to clear up in the database takes a core, and the caches, from whoever is measured beside it. */
async function databaseQuiet(world: BenchWorld): Promise<void> {
  const untilMs = monotonicMs() + MOST_MS
  for (let share = 1; share > QUIET_SHARE && monotonicMs() < untilMs;) {
    const before = await cpuSeconds(world.databasePid)
    await new Promise((resolve) => setTimeout(resolve, 1000))
    share = (await cpuSeconds(world.databasePid)) - before
    if (share > QUIET_SHARE && monotonicMs() >= untilMs) process.stderr.write('bench: the database is not idle yet\n')
  }
}
