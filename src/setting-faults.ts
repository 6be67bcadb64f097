/**
 * What can be wrong with a setting, in sentences that say what to do. For `config.ts`.
 */

/** A year. A date that no column can hold would leave the attempt before it unrecorded. */
const LONGEST_WAIT_SECONDS = 31_536_000
/** Of all waits: far more than anybody needs, and fewer than attempts can be counted. */
const MOST_WAITS = 1000

/** Reads `5,300,1800`. */
export function readRetrySchedule(text: string, fallback: string, faults: string[]): number[] {
  const parts = text.split(',').map((part) => part.trim())
  const seconds = parts.map(Number)
  const isUsable = (part: string, n: number) =>
    /^\d+(\.\d+)?$/.test(part) && seconds[n]! > 0 && seconds[n]! <= LONGEST_WAIT_SECONDS
  if (parts.length > MOST_WAITS || !parts.every(isUsable)) {
    faults.push(
      `RETRY_SCHEDULE must be comma-separated seconds above 0 and up to ${LONGEST_WAIT_SECONDS}, ${MOST_WAITS} of them at most (default ${fallback})`,
    )
  }
  return seconds
}
