/** What a race has counted, and what was off. */
import type { Answer } from '../crash/lead-client.ts'

const SHOWN_FAULTS = 5

export class Tally {
  readonly #counts = new Map<string, number>()
  readonly faults: string[] = []

  add(name: string, by = 1): void {
    this.#counts.set(name, (this.#counts.get(name) ?? 0) + by)
  }

  /** The highest. */
  most(name: string, value: number): void {
    this.#counts.set(name, Math.max(this.#counts.get(name) ?? -Infinity, value))
  }

  least(name: string, value: number): void {
    this.#counts.set(name, Math.min(this.#counts.get(name) ?? Infinity, value))
  }

  get(name: string): number {
    return this.#counts.get(name) ?? 0
  }

  /** @param isRight otherwise it is a fault */
  check(isRight: boolean, what: () => string): void {
    if (!isRight) this.faults.push(what())
  }

  /**
   * Counts the answers by their status.
   * @param known every other status is a fault, and so is no answer
   * @returns how many there were of each
   */
  answers(answers: Answer[], known: number[]): Record<number, number> {
    const counts: Record<number, number> = {}
    for (const { status, body } of answers) {
      this.add(String(status))
      if (status !== null) counts[status] = (counts[status] ?? 0) + 1
      this.check(known.includes(status as number), () => `${status} ${JSON.stringify(body).slice(0, 200)}`)
    }
    return counts
  }

  /** @param expected how many there must be of each status, and of no other */
  exactly(answers: Answer[], expected: Record<number, number>, where: string): void {
    const counts = this.answers(answers, Object.keys(expected).map(Number))
    const wanted = Object.entries(expected).filter(([, count]) => count > 0)
    const isRight = wanted.every(([status, count]) => counts[Number(status)] === count)
    this.check(isRight, () => `${where}: ${JSON.stringify(counts)} instead of ${JSON.stringify(expected)}`)
  }

  lines(name: string): string[] {
    const counts = [...this.#counts].map(([what, count]) => `${what}=${count}`).join(' ')
    const shown = this.faults.slice(0, SHOWN_FAULTS)
    return [`${name.padEnd(3)} ${counts} off=${this.faults.length}`, ...shown.map((fault) => `    ${fault}`)]
  }
}

export const accepted = (answers: Answer[]) => answers.filter(({ status }) => status === 200)
