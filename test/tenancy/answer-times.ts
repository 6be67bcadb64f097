/**
 * Whether two kinds of calls can be told apart by how long their answers take. Both are made in turns, in no order, and their medians
 * compared: what else the machine does falls on either kind.
 */
import { monotonicMs } from '../../src/clock.ts'

/** By how much the medians may differ, in milliseconds. */
export const TOLD_APART_MS = 5

/** @returns by how many milliseconds the median of the one is above that of the other */
export async function medianDifference(
  samples: number,
  one: () => Promise<unknown>,
  other: () => Promise<unknown>,
): Promise<number> {
  const times: Record<'one' | 'other', number[]> = { one: [], other: [] }
  for (let n = 0; n < samples; n++) {
    const kinds = [['one', one], ['other', other]] as const // prettier-ignore
    for (const [name, call] of Math.random() < 0.5 ? kinds : kinds.toReversed()) {
      const startedAtMs = monotonicMs()
      await call()
      times[name].push(monotonicMs() - startedAtMs)
    }
  }
  return median(times.one) - median(times.other)
}

/** A difference that is there is seen each time; one that a busy machine has made is not. */
export async function areToldApart(difference: () => Promise<number>) {
  const first = await difference()
  if (Math.abs(first) <= TOLD_APART_MS) return { isTold: false, differenceMs: first }
  const second = await difference()
  return { isTold: Math.abs(second) > TOLD_APART_MS && first > 0 === second > 0, differenceMs: second }
}

function median(values: number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!
}
