/**
 * Events at a steady pace, and what became of them.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { monotonicMs } from '../../src/clock.ts'
import type { DaemonHints } from '../../src/events/daemon-hints.ts'
import type { BenchWorld } from './bench-world.ts'

const RECEIPTS_TIMEOUT_MS = 30_000

/** From the request of an event to the head of its receipt, in milliseconds. */
export interface Delays {
  p50: number
  p99: number
  max: number
}

export function delaysOf(delays: number[]): Delays {
  const sorted = delays.toSorted((a, b) => a - b)
  const at = (share: number) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Infinity
  return { p50: at(0.5), p99: at(0.99), max: at(1) }
}

/** An event for each webhook in each second, evenly spread, on a schedule that no delay holds up. */
export async function sendEvents(
  world: BenchWorld,
  hints: DaemonHints,
  labIds: string[],
  seconds: number,
): Promise<void> {
  const startMs = performance.timeOrigin + performance.now()
  const sending: Promise<unknown>[] = []
  for (let n = 0; n < seconds * labIds.length; n++) {
    const atMs = startMs + (n * 1000) / labIds.length
    const waitMs = atMs - (performance.timeOrigin + performance.now())
    if (waitMs > 1) await sleep(waitMs)
    sending.push(world.addEvents(1, true, labIds[n % labIds.length], atMs).then(() => hints.send()))
  }
  await Promise.all(sending)
}

/** Waits until so many different receipts have arrived since the receiver was reset. */
export async function untilReceived(world: BenchWorld, receipts: number): Promise<void> {
  const untilMs = monotonicMs() + RECEIPTS_TIMEOUT_MS
  while ((await world.counts()).receipts < receipts) {
    if (monotonicMs() > untilMs) throw new Error('the first events did not arrive')
    await sleep(50)
  }
}
