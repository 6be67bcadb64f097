/**
 * Calls on a fixed schedule, whatever becomes of them: each is timed from when it should have left, so that a slow answer hides
 * nothing.
 */
import { monotonicMs } from '../../src/clock.ts'
import { pause } from '../crash/crash-stage.ts'
import type { CallKind } from './soak-calls.ts'

/** Of integrators and patients. */
type MixedKind = Exclude<CallKind, 'bill'>

/** Of twenty calls: 40 % leads and bookings, 25 % lists, 10 % pre-bookings, logins and webhooks each, 5 % tokens. */
const MIX: Record<MixedKind, number> = {
  lead: 8,
  list: 5,
  preBooking: 2,
  patient: 2,
  webhook: 2,
  token: 1,
}

/** The kinds of calls in a random order that has the right share of each in any twenty. */
export function* mixedCalls(random: () => number): Generator<MixedKind> {
  const deck = Object.entries(MIX).flatMap(([kind, count]) => Array<MixedKind>(count).fill(kind as MixedKind))
  for (;;) {
    const left = [...deck]
    while (left.length > 0) yield left.splice(Math.floor(random() * left.length), 1)[0]!
  }
}

/**
 * Resolves when all that left has been answered.
 * @param isOver looked at before each: whether to stop early
 */
export async function onSchedule(
  { rate, count }: { rate: number; count: number },
  call: (dueAtMs: number) => Promise<void>,
  isOver: () => boolean,
): Promise<void> {
  const startMs = monotonicMs()
  const running = new Set<Promise<void>>()
  for (let n = 0; n < count; n++) {
    const dueAtMs = startMs + (n * 1000) / rate
    const waitMs = dueAtMs - monotonicMs()
    if (waitMs > 1) await pause(waitMs)
    if (isOver()) break
    // A timer may fire up to a millisecond early.
    const made: Promise<void> = call(Math.min(dueAtMs, monotonicMs())).finally(() => running.delete(made))
    running.add(made)
  }
  await Promise.all(running)
}
