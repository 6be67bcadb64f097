/**
 * Requests to the API, as they are counted and shown.
 */
import { Tally, type Metrics, type Sample } from './metrics.ts'

const BOUNDS_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5]

/** Of requests that reached no operation: probes, pages, unknown paths. */
const NO_OPERATION = 'none'

export class RequestCounts {
  /** By operation, then by status. There are as many operations as the contracts have. */
  readonly #counts = new Map<string, Map<number, number>>()
  readonly #durations = new Tally(BOUNDS_SECONDS)
  inFlight = 0

  /** @param status undefined: the caller went away before its answer */
  completed(operation: string | undefined, status: number | undefined, durationMs: number): void {
    const name = operation ?? NO_OPERATION
    let statuses = this.#counts.get(name)
    if (!statuses) this.#counts.set(name, (statuses = new Map()))
    statuses.set(status ?? 0, (statuses.get(status ?? 0) ?? 0) + 1)
    this.#durations.add(durationMs / 1000)
  }

  register(metrics: Metrics): void {
    metrics.counter('lis_http_requests_total', 'Answered requests, by operation and status (0: aborted)', () =>
      this.#samples(),
    )
    metrics.histogram('lis_http_request_seconds', 'From the head of a request to the end of its answer', () => [
      { tally: this.#durations },
    ])
    metrics.gauge('lis_http_requests_in_flight', 'Requests that are not answered yet', () => [{ value: this.inFlight }])
  }

  #samples(): Sample[] {
    return [...this.#counts].flatMap(([operation, statuses]) =>
      [...statuses].map(([status, value]) => ({ labels: { operation, status: String(status) }, value })),
    )
  }
}
