/**
 * Collects the results of all lanes of this daemon and writes them together: a transaction each 25 ms or 500 rows, one at a
 * time. A result is safe only once its transaction has committed; until then its delivery counts as not yet made.
 */
import type { BatchPool } from '../db/batch.ts'
import { isConnectionFault, isDuplicate, isRetriable, isTooMuch } from '../db/connection.ts'
import type { Clock } from '../src/clock.ts'
import { recordAttempts, type Recorded } from '../src/deliveries/attempts-repository.ts'
import { KnownLanes } from '../src/deliveries/known-lanes.ts'
import type { AttemptResult, RecordingRules } from '../src/deliveries/recording-rules.ts'
import { errorFields, type Logger } from '../src/logger.ts'

const FLUSH_AFTER_MS = 25
const FLUSH_ROWS = 500
const RETRY_WAIT_MS = 50
const RETRY_WAIT_MAX_MS = 1000
/** After so many in a row less is tried at once: it may be the batch that takes longer than a connection is waited for. */
const MOST_FAULTS = 6

export interface RecorderOptions {
  batch: BatchPool
  token: () => string
  clock: Clock
  rules: RecordingRules
  log: Logger
  onRecorded: (results: AttemptResult[], recorded: Recorded) => void
  onUnrecordable: (result: AttemptResult) => void
}

export class Recorder {
  readonly #options: RecorderOptions
  readonly #known = new KnownLanes()
  #pending: AttemptResult[] = []
  #timer: NodeJS.Timeout | undefined
  #flushing: Promise<void> | undefined
  /** Of the batch that is being recorded. */
  #flushed = 0

  constructor(options: RecorderOptions) {
    this.#options = options
  }

  /** Results that are not on disk yet. */
  get unrecorded(): number {
    return this.#pending.length + this.#flushed
  }

  push(result: AttemptResult): void {
    this.#pending.push(result)
    if (this.#flushing) return
    if (this.#pending.length >= FLUSH_ROWS) this.#flush()
    else this.#timer ??= setTimeout(() => this.#flush(), FLUSH_AFTER_MS)
  }

  /** Resolves when everything pushed so far is recorded or belongs to a lane that was lost. */
  async drain(): Promise<void> {
    while (this.#pending.length > 0 || this.#flushing) {
      this.#flush()
      await this.#flushing
    }
  }

  #flush(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    if (this.#flushing || this.#pending.length === 0) return
    const results = this.#pending.slice(0, FLUSH_ROWS)
    this.#pending = this.#pending.slice(FLUSH_ROWS)
    this.#flushed = results.length
    this.#flushing = this.#record(results).finally(() => {
      this.#flushing = undefined
      this.#flushed = 0
      if (this.#pending.length >= FLUSH_ROWS) this.#flush()
      else if (this.#pending.length > 0) this.#timer ??= setTimeout(() => this.#flush(), FLUSH_AFTER_MS)
    })
  }

  /** Never gives up: results that are dropped would be requests sent a second time. */
  async #record(results: AttemptResult[], mayBeOnDisk = false): Promise<void> {
    const { batch, token, clock, rules, log, onRecorded } = this.#options
    let inDoubt = mayBeOnDisk
    let faults = 0
    for (let waitMs = RETRY_WAIT_MS; ; waitMs = Math.min(waitMs * 2, RETRY_WAIT_MAX_MS)) {
      const owner = token()
      const own = resultsOf(owner, results)
      if (own.length === 0) return
      let recorded
      try {
        recorded = await recordAttempts(batch, owner, own, clock.now(), rules, inDoubt, this.#known)
      } catch (error) {
        // An attempt of that number is on disk already: it is looked which.
        const wasWritten = isDuplicate(error) && !inDoubt
        const isFault = isConnectionFault(error)
        if (isFault) faults += 1
        const isHopeless = !wasWritten && !isRetriable(error) && !isFault
        const isLarge = isTooMuch(error) || faults >= MOST_FAULTS
        if (isHopeless || (isLarge && results.length > 1)) return this.#split(results, error, inDoubt)
        // The connection may have broken behind the COMMIT.
        inDoubt ||= isFault || wasWritten
        log.warn('attempts.record_retried', { ...errorFields(error), batch: results.length })
        await new Promise((resolve) => setTimeout(resolve, waitMs * (0.5 + Math.random() / 2)))
        continue
      }
      // Not a part of what is tried again: it is on disk.
      return onRecorded(own, recorded)
    }
  }

  /** What no repetition cures is halved until the row that is to blame stands alone, and what is too much at once until it is not. */
  async #split(results: AttemptResult[], error: unknown, inDoubt: boolean): Promise<void> {
    if (results.length === 1) {
      const { webhookId, eventId } = results[0]!
      // Its delivery stays held by its lane, so it is not sent over and over; it is tried again after a restart.
      this.#options.log.error('attempt.not_recordable', { ...errorFields(error), webhookId, eventId })
      this.#options.onUnrecordable(results[0]!)
      return
    }
    const middle = Math.ceil(results.length / 2)
    await this.#record(results.slice(0, middle), inDoubt)
    await this.#record(results.slice(middle), inDoubt)
  }
}

/** A function that is made anew for each batch would be compiled anew after each look through the heap. */
function resultsOf(token: string, results: AttemptResult[]): AttemptResult[] {
  const own: AttemptResult[] = []
  for (const result of results) if (result.token === token && !result.run?.isLost) own.push(result)
  return own
}
