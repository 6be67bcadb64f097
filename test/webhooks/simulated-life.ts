/**
 * Webhooks through months, minute by minute, on the rules alone: what an attempt changes, what the clock does, and when it is
 * tried again. Only time, endpoints and people are made up.
 */
import {
  applyResult,
  type AttemptResult,
  type LaneRecord,
  type RecordingRules,
} from '../../src/deliveries/recording-rules.ts'
import { HEALTHY, judgeClock, type HealthEffect, type WebhookHealth } from '../../src/webhooks/webhook-health.ts'
import type { Entry, SeenMail, SeenRow } from './life-judge.ts'
import { SimulatedEndpoint, type Answer } from './simulated-endpoint.ts'

export const RULES = {
  warnAfterSeconds: 43_200,
  warnByClockSeconds: 82_800,
  deleteAfterSeconds: 86_400,
  minWarningLeadSeconds: 0,
  retryScheduleSeconds: [5, 300, 1800, 7200, 18_000, 18_000, 21_600, 19_500],
}

export const MINUTE_MS = 60_000
export const DAY_MINUTES = 1440
export const START_MS = Date.UTC(2026, 10, 20)

/** Chances of what people do, for each minute. */
export const PEOPLE = {
  deleteActive: 1 / (45 * DAY_MINUTES),
  reactivate: 1 / (1.5 * DAY_MINUTES),
  deleteGone: 1 / (20 * DAY_MINUTES),
}

/** What is due sooner than in this time after a recovery comes by itself. */
const SOON_MS = 45_000
/** After a recovery ten go at once, and the next ten after this time. */
const TEN_EACH_MS = 2000

interface Copy {
  event: number
  dueAtMs: number
  /** When it is sent: after a recovery before its time. */
  sendAtMs: number
  attempts: number
  earlyAttempts: number
}

interface Flight {
  endsAtMs: number
  answer: Answer
  result: AttemptResult
}

export class SimulatedLife {
  readonly #random: () => number
  readonly #rules: RecordingRules
  readonly #endpoint: SimulatedEndpoint
  readonly #lane: LaneRecord = { webhookId: 'w', state: 'active', epoch: 1, health: HEALTHY, seq: 0, moves: 0 }
  #copies: Copy[] = []
  #flights: Flight[] = []
  /** Nothing is due before. */
  #nextAtMs = Infinity
  #events = 0
  readonly entries: Entry[] = []

  constructor(random: () => number, endpoint: SimulatedEndpoint) {
    this.#random = random
    this.#rules = { ...RULES, random }
    this.#endpoint = endpoint
  }

  /** @returns false when the webhook is deleted for good */
  minute(fromMs: number): boolean {
    const random = this.#random
    this.#endpoint.pass(1)
    if (!this.#people(fromMs)) return false
    if (random() < this.#endpoint.eventsAnHour / 60) this.#event(fromMs + Math.floor(random() * MINUTE_MS))
    const untilMs = fromMs + MINUTE_MS
    if (this.#nextAtMs < untilMs) this.#work(untilMs)
    if (this.#lane.state === 'active') this.#look(untilMs)
    return true
  }

  #people(atMs: number): boolean {
    const chance = this.#random()
    const isActive = this.#lane.state === 'active'
    if (chance < (isActive ? PEOPLE.deleteActive : PEOPLE.deleteGone)) {
      this.entries.push({ kind: 'deleted', atMs })
      return false
    }
    if (!isActive && chance > 1 - PEOPLE.reactivate) {
      Object.assign(this.#lane, { state: 'active', health: HEALTHY })
      this.entries.push({ kind: 'reactivated', atMs, row: this.#row() })
    }
    return true
  }

  #event(atMs: number): void {
    const event = this.#events++
    this.entries.push({ kind: 'event', event, atMs })
    if (this.#lane.state !== 'active') return
    this.#copies.push({ event, dueAtMs: atMs, sendAtMs: atMs, attempts: 0, earlyAttempts: 0 })
    this.#nextAtMs = Math.min(this.#nextAtMs, atMs)
  }

  #work(untilMs: number): void {
    for (;;) {
      const copy = least(this.#copies, ({ sendAtMs }) => sendAtMs)
      const flight = least(this.#flights, ({ endsAtMs }) => endsAtMs)
      this.#nextAtMs = Math.min(copy?.sendAtMs ?? Infinity, flight?.endsAtMs ?? Infinity)
      if (this.#nextAtMs >= untilMs) return
      if (flight && flight.endsAtMs === this.#nextAtMs) this.#record(flight)
      else this.#start(copy!)
    }
  }

  #start(copy: Copy): void {
    this.#copies.splice(this.#copies.indexOf(copy), 1)
    const answer = this.#endpoint.answer()
    const { ok, durationMs, retryAfterMs } = answer
    const result: AttemptResult = {
      ...{ token: 't', webhookId: 'w', eventId: String(copy.event), place: 0, isTest: false, isMessage: false },
      ...{ dueAt: new Date(copy.dueAtMs), startedAt: new Date(copy.sendAtMs), epoch: this.#lane.epoch },
      ...{ n: copy.attempts + 1, earlyAttempts: copy.earlyAttempts, ok, durationMs, retryAfterMs, answer: null },
      ...{ class: ok ? 'ok' : 'status', status: ok ? 204 : 500, error: ok ? null : answer.error },
    }
    this.#flights.push({ endsAtMs: copy.sendAtMs + durationMs, answer, result })
  }

  #record(flight: Flight): void {
    this.#flights.splice(this.#flights.indexOf(flight), 1)
    const { endsAtMs, answer, result } = flight
    const { delivery, effects, recovers } = applyResult(this.#lane, result, new Date(endsAtMs), this.#rules)
    const event = Number(result.eventId)
    this.entries.push({
      ...{ kind: 'attempt', event, startedAtMs: result.startedAt.getTime(), endedAtMs: endsAtMs },
      ...{ ok: answer.ok, error: answer.error, retryAfterMs: answer.retryAfterMs, row: this.#row() },
    })
    for (const { effect, health } of effects) this.entries.push(mailOf(effect, health, endsAtMs))
    if (this.#lane.state !== 'active') {
      // Its lane discards what waits.
      this.#copies = []
      return
    }
    if ('retryAt' in delivery) {
      const dueAtMs = delivery.retryAt.getTime()
      this.#copies.push({
        event,
        dueAtMs,
        sendAtMs: dueAtMs,
        attempts: result.n,
        earlyAttempts: delivery.earlyAttempts,
      })
    }
    if (recovers) this.#hasten(endsAtMs)
    else if (!answer.ok) for (const copy of this.#copies) copy.sendAtMs = copy.dueAtMs
  }

  /** Oldest first, but none that was tried so as often as at its time, twice over. */
  #hasten(nowMs: number): void {
    const waiting = this.#copies
      .filter(({ dueAtMs, attempts, earlyAttempts }) => dueAtMs > nowMs + SOON_MS && 3 * earlyAttempts < 2 * attempts)
      .sort((a, b) => a.event - b.event)
    for (const [n, copy] of waiting.entries())
      copy.sendAtMs = Math.min(copy.dueAtMs, nowMs + 1 + Math.floor(n / 10) * TEN_EACH_MS)
  }

  #look(atMs: number): void {
    const { health, effects } = judgeClock(this.#lane.health, new Date(atMs), RULES)
    this.#lane.health = health
    for (const effect of effects) this.entries.push(mailOf(effect, health, atMs))
  }

  #row(): SeenRow {
    const { state, health } = this.#lane
    const { firstFailureAt, failedAttempts, lastError, warnedAt } = health
    return {
      state,
      firstFailureMs: firstFailureAt?.getTime() ?? null,
      failedAttempts,
      lastError,
      warned: warnedAt !== null,
    }
  }
}

function mailOf(effect: HealthEffect, health: WebhookHealth, atMs: number): SeenMail {
  return {
    ...{ kind: 'mail', mail: effect === 'warn' ? 'warning' : 'deletion', atMs },
    ...{
      sinceMs: health.firstFailureAt!.getTime(),
      failedAttempts: health.failedAttempts,
      lastError: health.lastError!,
    },
  }
}

function least<T>(all: T[], of: (one: T) => number): T | undefined {
  let best: T | undefined
  for (const one of all) if (best === undefined || of(one) < of(best)) best = one
  return best
}
