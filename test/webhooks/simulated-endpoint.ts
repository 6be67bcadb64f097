/**
 * An endpoint that is up or down, minute by minute, with a chance of its own for each way, and what it answers.
 */
export interface Answer {
  ok: boolean
  error: string
  durationMs: number
  retryAfterMs: number | undefined
}

interface Kind {
  /** Minutes that it is up, and down, on average. */
  upMinutes: number
  downMinutes: number
  /** Of the attempts when it is down these fail. */
  failing: number
  /** Of the attempts when it is up these fail. */
  stumbling: number
  eventsAnHour?: number
}

const DAY = 1440
const KINDS: Kind[] = [
  { upMinutes: 14 * DAY, downMinutes: 30, failing: 1, stumbling: 0.002 },
  { upMinutes: DAY, downMinutes: 180, failing: 1, stumbling: 0 },
  { upMinutes: 5 * DAY, downMinutes: 18 * 60, failing: 1, stumbling: 0 },
  { upMinutes: 6 * DAY, downMinutes: 40 * 60, failing: 1, stumbling: 0 },
  { upMinutes: 4 * DAY, downMinutes: 30 * 60, failing: 0.97, stumbling: 0.01 },
  // A 2xx now and then lets a failing time begin with the last attempts of an event, so that nothing is tried for half a day.
  { upMinutes: DAY, downMinutes: 20 * DAY, failing: 0.85, stumbling: 0.05, eventsAnHour: 0.08 },
]
/** Events an hour: from one in two days to two. */
const EVENTS_AN_HOUR = [0.02, 0.1, 0.5, 2]
const ERRORS = ['HTTP status 500', 'HTTP status 302', 'HTTP status 410', 'the connection was refused']
const TIMEOUT = { error: 'no answer within 10 s', durationMs: 10_000 }

function pick<T>(all: T[], random: () => number): T {
  return all[Math.floor(random() * all.length)]!
}

export class SimulatedEndpoint {
  readonly #random: () => number
  readonly #kind: Kind
  readonly eventsAnHour: number
  #isUp: boolean

  /** @param isFrail down for long, half of them at first, and never without an event for long: what few webhooks show in few days */
  constructor(random: () => number, isFrail = false) {
    this.#random = random
    this.#kind = pick(isFrail ? KINDS.slice(2) : KINDS, random)
    const eventsAnHour = pick(isFrail ? EVENTS_AN_HOUR.slice(1) : EVENTS_AN_HOUR, random)
    this.#isUp = !isFrail || random() < 0.5
    this.eventsAnHour = this.#kind.eventsAnHour ?? eventsAnHour
  }

  /** @param minutes that go by */
  pass(minutes: number): void {
    const { upMinutes, downMinutes } = this.#kind
    if (this.#random() < minutes / (this.#isUp ? upMinutes : downMinutes)) this.#isUp = !this.#isUp
  }

  answer(): Answer {
    const random = this.#random
    const ok = random() >= (this.#isUp ? this.#kind.stumbling : this.#kind.failing)
    const durationMs = 5 + Math.floor(random() * (ok ? 400 : 9000))
    if (ok) return { ok, error: '', durationMs, retryAfterMs: undefined }
    if (random() < 0.2) return { ok, ...TIMEOUT, retryAfterMs: undefined }
    const error = pick(ERRORS, random)
    const asked = random() < 0.05 ? Math.floor(random() * 12 * 3_600_000) : undefined
    return { ok, error, durationMs, retryAfterMs: asked }
  }
}
