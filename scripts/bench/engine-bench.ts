/**
 * What the engine costs without deliveries: fanning out, and waiting.
 */
import { monotonicMs } from '../../src/clock.ts'
import { routeEvents } from '../../src/events/event-routing.ts'
import { cpuSeconds, type BenchWorld } from './bench-world.ts'

const ROUTED_AT_ONCE = 500

/** Events fanned out per second, to one webhook each. */
export async function fanOutRate(world: BenchWorld): Promise<number> {
  const events = 20_000
  await world.clear()
  await world.addWebhooks([world.url('ok/0')])
  await world.addEvents(events, true)
  const startedAtMs = monotonicMs()
  for (let routed = 0; routed < events;)
    routed += (await routeEvents(world.database.batch, world.clock.now(), ROUTED_AT_ONCE)).events
  const rate = (events / (monotonicMs() - startedAtMs)) * 1000
  const n = (await world.database.knex('delivery_queue').count({ n: '*' }))[0]?.n
  if (Number(n) !== events) throw new Error(`${n} deliveries of ${events}`)
  return rate
}

/** The share of a core that an idle daemon takes with so many webhooks, in per cent. */
export async function idleShare(world: BenchWorld, webhooks: number): Promise<number> {
  const seconds = 5
  await world.clear()
  await world.addWebhooks(Array.from({ length: webhooks }, (_, n) => world.url(`ok/${n}`)))
  const daemon = await world.startDaemon()
  await new Promise((resolve) => setTimeout(resolve, 1500))
  const before = await cpuSeconds(daemon.pid!)
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000))
  const share = ((await cpuSeconds(daemon.pid!)) - before) / seconds
  await world.stopDaemon(daemon)
  return share * 100
}
