/**
 * Lanes that fan-outs have taken for this daemon, until their jobs run.
 */
import type { TakenLane } from './lane-ownership.ts'
import type { Look } from './lane-views.ts'

export class ReservedLanes {
  readonly #taken = new Map<string, TakenLane>()
  /** Taken by a transaction whose COMMIT is under way, whether their jobs run by now or not: their rows do not say yet that they are ours. */
  readonly #unconfirmed = new Set<string>()

  get size(): number {
    return this.#taken.size
  }

  get webhookIds(): string[] {
    return [...this.#taken.keys()]
  }

  get unconfirmed(): ReadonlySet<string> {
    return this.#unconfirmed
  }

  has(webhookId: string): boolean {
    return this.#taken.has(webhookId)
  }

  add(lane: TakenLane): void {
    this.#taken.set(lane.state.webhookId, lane)
  }

  /** Called before they are added. */
  awaitCommit(taken: TakenLane[]): void {
    for (const { state } of taken) this.#unconfirmed.add(state.webhookId)
  }

  /** The COMMIT has come to its end, and the next look tells whether they are ours. */
  confirm(taken: TakenLane[]): void {
    for (const { state } of taken) this.#unconfirmed.delete(state.webhookId)
  }

  /** Something may be due: what it was taken with is not all any more. @returns whether it is here */
  nudge(webhookId: string): boolean {
    const lane = this.#taken.get(webhookId)
    // Until that COMMIT nobody can give it anything, and nothing of it can be read.
    if (lane && !this.#unconfirmed.has(webhookId)) lane.head = undefined
    return lane !== undefined
  }

  /** For its job. */
  take(webhookId: string): TakenLane | undefined {
    const lane = this.#taken.get(webhookId)
    this.#taken.delete(webhookId)
    return lane
  }

  clear(): void {
    this.#taken.clear()
  }

  /** What is not ours by its row is left to whoever has it. */
  looked({ owned, readAtMs }: Look): void {
    for (const [webhookId, lane] of this.#taken) {
      if (lane.readAtMs < readAtMs && !owned.has(webhookId)) this.#taken.delete(webhookId)
    }
  }
}
