/**
 * Waiting for receipts, and holding them to what was sent.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { monotonicMs } from '../../src/clock.ts'
import type { BenchWorld } from './bench-world.ts'

/** Where nothing has come for so long, nothing more will. */
const STALLED_MS = 15_000
const RECORDING_TIMEOUT_MS = 60_000
const LOOK_MS = 5
/** While most are still to come: each look is work for the receiver, which the service pays for. */
const FAR_LOOK_MS = 50

/** @throws when they stop coming before */
export async function untilReceipts(world: BenchWorld, receipts: number): Promise<void> {
  let seen = 0
  let grownAtMs = monotonicMs()
  for (;;) {
    const now = (await world.counts()).receipts
    if (now >= receipts) return
    if (now > seen) {
      seen = now
      grownAtMs = monotonicMs()
    }
    if (monotonicMs() - grownAtMs > STALLED_MS) throw new Error(`${now} receipts of ${receipts}, and no more come`)
    await sleep(now < 0.95 * receipts ? FAR_LOOK_MS : LOOK_MS)
  }
}

/**
 * Waits until every receipt is recorded durably and nothing waits. The queues are asked once the receiver has them all: a look at
 * their heads walks over what was deleted there, and many of them would be a load of their own.
 * @throws when one is missing or came twice
 */
export async function untilRecorded(world: BenchWorld, receipts: number): Promise<void> {
  const { knex } = world.database
  await untilReceipts(world, receipts)
  await until(async () => !(await knex('unrouted_events').first('event_id')))
  await until(async () => !(await knex('delivery_queue').first('event_id')))
  const counts = await world.counts()
  if (counts.receipts !== receipts || counts.doubled > 0) {
    throw new Error(`${counts.receipts} receipts of ${receipts}, ${counts.doubled} twice`)
  }
}

export async function until(condition: () => Promise<boolean>): Promise<void> {
  const untilMs = monotonicMs() + RECORDING_TIMEOUT_MS
  while (!(await condition())) {
    if (monotonicMs() > untilMs) throw new Error('the database was not done in time')
    await sleep(LOOK_MS)
  }
}
