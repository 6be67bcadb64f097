/**
 * A warning that thousands of lanes may give several times a second while the database is away: one line every few seconds for
 * all of them.
 */
import { errorFields, type Logger } from '../src/logger.ts'
import { atMostEach, type AtMostEach } from './at-most-each.ts'

const LINE_EACH_MS = 5000

export class LaneWarnings {
  /** Since the last line. */
  readonly #webhookIds = new Set<string>()
  #error: unknown
  readonly #line: AtMostEach

  constructor(log: Logger, event: string) {
    this.#line = atMostEach(LINE_EACH_MS, () => {
      const [webhookId] = this.#webhookIds
      const lanes = this.#webhookIds.size
      this.#webhookIds.clear()
      // One may have a fault of its own, and is named; of many the last fault speaks for all.
      log.warn(event, { ...errorFields(this.#error), lanes, webhookId: lanes === 1 ? webhookId : undefined })
    })
  }

  add(webhookId: string, error: unknown): void {
    this.#webhookIds.add(webhookId)
    this.#error = error
    this.#line.ask()
  }

  stop(): void {
    this.#line.stop()
  }
}
