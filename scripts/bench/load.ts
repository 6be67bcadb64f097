/**
 * Starts the client of the benchmarks and gives it its orders.
 */
import { fork, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import type { LoadOrder, LoadResult } from './load-process.ts'
import type { Tenant } from './tenants.ts'

export class Load {
  readonly #child: ChildProcess

  constructor(tenants: Tenant[]) {
    this.#child = fork(join(import.meta.dirname, 'load-process.ts'))
    this.use(tenants)
  }

  /** From now on these call, in turn. */
  use(tenants: Tenant[]): void {
    this.#child.send({ tenants })
  }

  /** @throws unless every answer has this status */
  async run(order: LoadOrder, status = 200): Promise<LoadResult> {
    const result = await this.ask(order)
    if (result.statuses[status] !== order.count) {
      throw new Error(`of ${order.count} requests ${JSON.stringify(result.statuses)}: ${result.firstFault ?? ''}`)
    }
    return result
  }

  /** Whatever the answers are. */
  async ask(order: LoadOrder): Promise<LoadResult> {
    const answer = once(this.#child, 'message')
    this.#child.send(order)
    const [{ result, fault }] = (await answer) as [{ result: LoadResult; fault?: string }]
    if (fault) throw new Error(`the client failed: ${fault}`)
    return result
  }

  close(): void {
    this.#child.kill('SIGKILL')
  }
}

/** Requests per second. */
export function rateOf({ startedAtMs, endedAtMs }: LoadResult, count: number): number {
  return (count / (endedAtMs - startedAtMs)) * 1000
}
