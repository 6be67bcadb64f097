/**
 * Judges what has happened to one webhook by the specification's words alone: its table of states, its rules of delivery, and the
 * waits between two attempts. It reads a finished history, keeps no state of health, and knows nothing of the code.
 */
const SECOND_MS = 1000
const MINUTE_MS = 60 * SECOND_MS
const HOUR_MS = 60 * MINUTE_MS
/** From one attempt to the next. */
const WAITS_SECONDS = [5, 300, 1800, 7200, 18_000, 18_000, 21_600, 19_500]
/** Nine, each but the last of which may be followed by two that recoveries bring, and these take nothing from the nine. */
const MOST_ATTEMPTS = 9 + 2 * 9

/** What a webhook's row shows. */
export interface SeenRow {
  state: string
  firstFailureMs: number | null
  failedAttempts: number
  lastError: string | null
  warned: boolean
}

export interface SeenMail {
  kind: 'mail'
  mail: 'warning' | 'deletion'
  atMs: number
  sinceMs: number
  failedAttempts: number
  lastError: string
}

export interface SeenAttempt {
  kind: 'attempt'
  event: number
  startedAtMs: number
  endedAtMs: number
  ok: boolean
  error: string
  /** What its `Retry-After` asked for. */
  retryAfterMs: number | undefined
  /** Of the webhook behind its record; undefined where others were recorded in the same transaction. */
  row: SeenRow | undefined
}

/** In the order in which it was recorded. A history begins with an active webhook. */
export type Entry =
  | { kind: 'event'; event: number; atMs: number }
  | SeenAttempt
  | SeenMail
  | { kind: 'deleted'; atMs: number }
  | { kind: 'reactivated'; atMs: number; row: SeenRow }

export interface Pace {
  /** From one look at failing webhooks to the next. */
  lookMs: number
  /** So much later than its time an attempt may start, and its record be written. */
  lateMs: number
  /** When the history ends. */
  untilMs: number
}

export interface Findings {
  violations: string[]
  attempts: number
  warnings: number
  /** Of these by the clock, with no attempt that could have brought them. */
  byClock: number
  deletions: number
  reactivations: number
  recoveries: number
  /** From a warning to its deletion, the shortest. */
  shortestLeadMs: number
}

/** From the first failed attempt to what ended it. */
interface FailingTime {
  failures: SeenAttempt[]
  /** No attempt of its event had been made before the one that began it. */
  isOfFirstAttempt: boolean
  end: 'success' | 'auto_deleted' | 'deleted' | 'open'
  endMs: number
}

interface Copy {
  atMs: number
  /** Undefined: the webhook was not active. */
  life: number | undefined
  tries: SeenAttempt[]
  /** How often the webhook had answered 2xx before the first of them: another one brings what waits before its time. */
  successesBefore: number
}

export function judgeLife(entries: Entry[], pace: Pace): Findings {
  const judge = new LifeJudge(pace)
  for (const entry of entries) judge.see(entry)
  return judge.end()
}

class LifeJudge {
  readonly #pace: Pace
  readonly #found: Findings = {
    ...{ violations: [], attempts: 0, warnings: 0, byClock: 0, deletions: 0, reactivations: 0, recoveries: 0 },
    shortestLeadMs: Infinity,
  }
  #state: 'active' | 'auto_deleted' | 'deleted' = 'active'
  /** Each from creation or reactivation to deletion. */
  readonly #lives = [{ fromMs: 0, untilMs: Infinity }]
  #failing: FailingTime | undefined
  readonly #times: FailingTime[] = []
  readonly #mails: SeenMail[] = []
  readonly #copies = new Map<number, Copy>()
  #successes = 0

  constructor(pace: Pace) {
    this.#pace = pace
  }

  #bad(rule: string, what: string): void {
    this.#found.violations.push(`${rule}: ${what}`)
  }

  get #life() {
    return this.#lives.at(-1)!
  }

  see(entry: Entry): void {
    switch (entry.kind) {
      case 'event': {
        const life = this.#state === 'active' ? this.#lives.length - 1 : undefined
        this.#copies.set(entry.event, { atMs: entry.atMs, life, tries: [], successesBefore: 0 })
        return
      }
      case 'attempt':
        return this.#attempt(entry)
      case 'mail':
        this.#mails.push(entry)
        return
      case 'deleted':
        if (this.#state === 'deleted') this.#bad('I15', 'deleted a second time')
        this.#endFailing('deleted', entry.atMs)
        this.#leave('deleted', entry.atMs)
        return
      case 'reactivated':
        if (this.#state !== 'auto_deleted') this.#bad('I15', `reactivated when ${this.#state}`)
        this.#state = 'active'
        this.#lives.push({ fromMs: entry.atMs, untilMs: Infinity })
        this.#found.reactivations += 1
        if (!isClean(entry.row)) this.#bad('I14', `not clean after a reactivation: ${JSON.stringify(entry.row)}`)
    }
  }

  #leave(state: 'auto_deleted' | 'deleted', atMs: number): void {
    if (this.#state === 'active') this.#life.untilMs = atMs
    this.#state = state
  }

  #endFailing(end: FailingTime['end'], endMs: number): void {
    if (!this.#failing) return
    this.#times.push({ ...this.#failing, end, endMs })
    this.#failing = undefined
  }

  #attempt(attempt: SeenAttempt): void {
    this.#found.attempts += 1
    const { startedAtMs, endedAtMs, ok } = attempt
    if (startedAtMs > this.#life.untilMs)
      this.#bad('I12', `an attempt at ${startedAtMs}, deleted at ${this.#life.untilMs}`)
    const copy = this.#copies.get(attempt.event)
    if (copy?.life === undefined)
      return this.#bad('I13', `an attempt for event ${attempt.event} of a time without the webhook`)
    const isOfNow = startedAtMs >= this.#life.fromMs
    if (isOfNow && copy.life !== this.#lives.length - 1)
      this.#bad('I13', `event ${attempt.event} of before the deletion`)
    this.#judgeWait(copy, attempt)
    if (copy.tries.push(attempt) === 1) copy.successesBefore = this.#successes
    // What was under way when the webhook went, or before it came back, judges nothing.
    if (this.#state !== 'active' || !isOfNow) return
    if (ok) {
      if (this.#failing) this.#found.recoveries += 1
      this.#endFailing('success', endedAtMs)
      this.#successes += 1
      if (attempt.row && !isClean(attempt.row)) this.#bad('I2', `not clean after a 2xx: ${JSON.stringify(attempt.row)}`)
      return
    }
    this.#failing ??= { failures: [], isOfFirstAttempt: copy.tries.length === 1, end: 'open', endMs: 0 }
    this.#failing.failures.push(attempt)
    this.#judgeRow(this.#failing.failures, attempt.row)
    if (endedAtMs - this.#failing.failures[0]!.endedAtMs < 24 * HOUR_MS) return
    this.#endFailing('auto_deleted', endedAtMs)
    this.#leave('auto_deleted', endedAtMs)
  }

  #judgeRow(failures: SeenAttempt[], row: SeenRow | undefined): void {
    if (!row) return
    const [first, last] = [failures[0]!, failures.at(-1)!]
    const isOver = last.endedAtMs - first.endedAtMs >= 24 * HOUR_MS
    if (row.firstFailureMs !== first.endedAtMs)
      this.#bad('I3', `first failure ${row.firstFailureMs}, not ${first.endedAtMs}`)
    if (row.state !== (isOver ? 'auto_deleted' : 'active')) {
      this.#bad(isOver ? 'I8' : 'I9', `${row.state} ${last.endedAtMs - first.endedAtMs} ms after the first failure`)
    }
    if (row.failedAttempts !== failures.length || row.lastError !== last.error) {
      this.#bad(
        'I20',
        `${row.failedAttempts} failed attempts and ${row.lastError}, not ${failures.length} and ${last.error}`,
      )
    }
  }

  #judgeWait({ tries, successesBefore }: Copy, attempt: SeenAttempt): void {
    const last = tries.at(-1)
    if (!last) return
    if (last.ok) this.#bad('delivery', `event ${attempt.event} was sent again after a 2xx`)
    if (tries.length >= MOST_ATTEMPTS) this.#bad('waits', `event ${attempt.event} has had ${tries.length} attempts`)
    if (this.#successes > successesBefore) return
    const wait = waitsAfter(tries)
    if (!wait) return this.#bad('waits', `event ${attempt.event} has had nine attempts`)
    const waitedMs = attempt.startedAtMs - last.endedAtMs
    if (waitedMs < wait.leastMs || waitedMs > wait.mostMs + this.#pace.lateMs) {
      this.#bad('waits', `attempt ${tries.length + 1} of event ${attempt.event} came after ${waitedMs} ms`)
    }
  }

  end(): Findings {
    this.#endFailing('open', this.#pace.untilMs)
    for (const time of this.#times) this.#judgeTime(time)
    const since = new Set(this.#times.map(({ failures }) => failures[0]!.endedAtMs))
    for (const { mail, sinceMs } of this.#mails) {
      if (!since.has(sinceMs)) this.#bad('I7', `a ${mail} about ${sinceMs}, when nothing began to fail`)
    }
    for (const [event, copy] of this.#copies) this.#judgeEnd(event, copy)
    return this.#found
  }

  #judgeTime(time: FailingTime): void {
    const { failures, end, endMs } = time
    const sinceMs = failures[0]!.endedAtMs
    const mails = this.#mails.filter((mail) => mail.sinceMs === sinceMs)
    const warnings = mails.filter(({ mail }) => mail === 'warning')
    const deletions = mails.filter(({ mail }) => mail === 'deletion')
    this.#found.warnings += warnings.length
    this.#found.deletions += deletions.length
    if (warnings.length > 1) this.#bad('I4', `${warnings.length} warnings about ${sinceMs}`)
    this.#judgeWarning(time, warnings[0])
    if (end !== 'auto_deleted' && deletions.length > 0)
      this.#bad('I9', `a deletion mail about ${sinceMs}, which ended by ${end}`)
    const lasted = endMs - sinceMs
    // Eight waits, each of them as late as it may be.
    const latestMs = 24 * HOUR_MS + 35 * MINUTE_MS + 9 * this.#pace.lateMs
    const asksForMore = failures.some(({ retryAfterMs }) => retryAfterMs !== undefined)
    if (time.isOfFirstAttempt && !asksForMore && lasted > latestMs)
      this.#bad('I10', `failing since ${sinceMs}, for ${lasted} ms`)
    if (end !== 'auto_deleted') return
    const [deletion] = deletions
    if (deletions.length !== 1) return this.#bad('I8', `${deletions.length} deletion mails about ${sinceMs}`)
    this.#judgeMail(deletion!, failures)
    if (!isWithin(deletion!.atMs, endMs, endMs + this.#pace.lateMs))
      this.#bad('I8', `a deletion mail at ${deletion!.atMs}`)
    if (!warnings[0]) return
    const leadMs = deletion!.atMs - warnings[0].atMs
    this.#found.shortestLeadMs = Math.min(this.#found.shortestLeadMs, leadMs)
    // The clock is looked at now and then.
    if (leadMs < HOUR_MS - this.#pace.lookMs) this.#bad('lead', `warned ${leadMs} ms before the deletion`)
  }

  /** By the first failed attempt from the 12th hour on, or at the 23rd hour, whichever is first. */
  #judgeWarning({ failures, end, endMs }: FailingTime, warning: SeenMail | undefined): void {
    const sinceMs = failures[0]!.endedAtMs
    const { lookMs, lateMs } = this.#pace
    const by = failures.find(({ endedAtMs }) => endedAtMs - sinceMs >= 12 * HOUR_MS)
    const byClockMs = sinceMs + 23 * HOUR_MS
    if (by && by.endedAtMs < byClockMs) {
      if (!warning) return this.#bad('I5', `no warning by the attempt that ended at ${by.endedAtMs}`)
      if (!isWithin(warning.atMs, by.endedAtMs, by.endedAtMs + lateMs))
        this.#bad('I5', `the warning came at ${warning.atMs}`)
      this.#judgeMail(warning, failures.slice(0, failures.indexOf(by) + 1))
      return
    }
    const mustCome = endMs > byClockMs + lookMs + lateMs || end === 'auto_deleted'
    if (!warning) return mustCome ? this.#bad('I6', `no warning about ${sinceMs} at 23 hours`) : undefined
    if (!isWithin(warning.atMs, byClockMs, byClockMs + lookMs)) {
      this.#bad(warning.atMs < byClockMs ? 'I7' : 'I6', `warned at ${warning.atMs}, failing since ${sinceMs}`)
    }
    this.#found.byClock += 1
    // By the clock, or by an attempt within the time of a look.
    const count = warning.failedAttempts
    const [least, most] = [0, lookMs].map((ms) => failures.filter(({ endedAtMs }) => endedAtMs < byClockMs + ms).length)
    if (!isWithin(count, least!, most!)) this.#bad('I19', `the warning says ${count} failed attempts`)
    else this.#judgeMail(warning, failures.slice(0, count))
  }

  #judgeMail({ mail, failedAttempts, lastError }: SeenMail, failures: SeenAttempt[]): void {
    if (failedAttempts !== failures.length)
      this.#bad('I19', `the ${mail} says ${failedAttempts}, not ${failures.length}`)
    if (lastError !== failures.at(-1)!.error)
      this.#bad('I16', `the ${mail} says ${lastError}, not ${failures.at(-1)!.error}`)
  }

  /** Nothing that is to be sent is forgotten. */
  #judgeEnd(event: number, { atMs, life, tries, successesBefore }: Copy): void {
    if (life === undefined) return
    const { lateMs, untilMs } = this.#pace
    const endMs = Math.min(this.#lives[life]!.untilMs, untilMs)
    const last = tries.at(-1)
    if (!last) {
      if (endMs > atMs + lateMs) this.#bad('I14', `event ${event} was never sent`)
      return
    }
    if (last.startedAtMs > atMs + lateMs && tries.length === 1)
      this.#bad('delivery', `event ${event} was first sent late`)
    const wait = last.ok || this.#successes > successesBefore ? undefined : waitsAfter(tries)
    if (wait && endMs > last.endedAtMs + wait.mostMs + lateMs)
      this.#bad('delivery', `event ${event} was not tried again`)
  }
}

function isClean({ state, firstFailureMs, failedAttempts, lastError, warned }: SeenRow): boolean {
  return state === 'active' && firstFailureMs === null && failedAttempts === 0 && lastError === null && !warned
}

/** Retry-After can only lengthen a wait, to twice itself at most; chance adds a tenth and five minutes at most. */
function waitsAfter(tries: SeenAttempt[]): { leastMs: number; mostMs: number } | undefined {
  const seconds = WAITS_SECONDS[tries.length - 1]
  if (seconds === undefined) return undefined
  const leastMs = seconds * SECOND_MS
  const mostMs = leastMs + Math.min(leastMs * 0.1, 5 * MINUTE_MS)
  return { leastMs, mostMs: tries.at(-1)!.retryAfterMs === undefined ? mostMs : leastMs * 2 }
}

const isWithin = (value: number, least: number, most: number) => value >= least && value <= most
