/**
 * A second reading of the specification's table of states, for the model test: histories of attempts, not a state machine, and
 * nothing of the code under test.
 */
const HOUR_MS = 3_600_000

/** Each party has one webhook at most. The first two share a URL. */
export const SLOTS = [0, 1, 2] as const
export type Slot = (typeof SLOTS)[number]
export const URL_OF_SLOT = ['https://a.example.com/hooks', 'https://a.example.com/hooks', 'https://b.example.com/hooks']
/** Attempts of the default schedule. */
const ATTEMPTS = 9

export interface ModelCopy {
  status: 'pending' | 'delivered' | 'exhausted' | 'discarded'
  attempts: number
  generation: number
}

/** An attempt that was started and has no result yet. */
export interface Flight {
  webhook: number
  event: number
  /** Of the daemon that made it. */
  token: string
  /** The webhook's generation when it started. */
  generation: number
  startedAtMs: number
}

export interface ModelMail {
  kind: 'warning' | 'deletion'
  sinceMs: number
  failedAttempts: number
  lastError: string
  /** How many webhooks share the URL: before the command, or when it is this one's turn in it. */
  onUrl: number[]
}

export interface ModelWebhook {
  slot: Slot
  state: 'active' | 'auto_deleted' | 'deleted'
  /** Raised by each reactivation. */
  generation: number
  /** Since creation, the last 2xx, or reactivation. */
  failures: { atMs: number; error: string }[]
  warned: boolean
  mails: ModelMail[]
  copies: Map<number, ModelCopy>
  owner: string | undefined
}

interface ModelEvent {
  /** Webhooks that were active when it was recorded. */
  wanted: { webhook: number; generation: number }[]
  routed: boolean
}

export interface Model {
  nowMs: number
  webhooks: ModelWebhook[]
  events: ModelEvent[]
  flights: Flight[]
  /** Tokens of the two daemons. */
  daemons: [string, string]
}

/** What is done, bound to one webhook and one attempt, so that several can be done at once in any order. */
export type Op =
  | { kind: 'advance'; ms: number }
  | { kind: 'event'; number: number; slots: Slot[] }
  | { kind: 'route' }
  | { kind: 'start'; webhook: number; event: number; daemon: 0 | 1 }
  | { kind: 'end'; token: string; results: { flight: Flight; ok: boolean; error: string }[] }
  | { kind: 'check' }
  | { kind: 'replace_daemon'; daemon: 0 | 1; token: string }
  | { kind: 'discard'; webhook: number; daemon: 0 | 1 }
  | { kind: 'subscribe'; slot: Slot }
  | { kind: 'delete'; webhook: number }
  | { kind: 'reactivate'; webhook: number }

export function newModel(nowMs: number, daemons: [string, string]): Model {
  return { nowMs, webhooks: [], events: [], flights: [], daemons: [...daemons] }
}

export function activeOf(model: Model, slot: Slot): ModelWebhook | undefined {
  return model.webhooks.find((webhook) => webhook.slot === slot && webhook.state === 'active')
}

/** Changes the model as the specification says. @returns what the caller is told */
export function apply(model: Model, op: Op, onUrlBefore: number[]): string {
  switch (op.kind) {
    case 'advance':
      model.nowMs += op.ms
      return 'done'
    case 'event':
      model.events[op.number] = {
        routed: false,
        wanted: [...model.webhooks.entries()]
          .filter(([, { state, slot }]) => state === 'active' && op.slots.includes(slot))
          .map(([webhook, { generation }]) => ({ webhook, generation })),
      }
      return 'done'
    case 'route':
      model.events.forEach((event, number) => event.routed || route(model, number, event))
      return 'done'
    case 'start':
      return start(model, op)
    case 'end':
      for (const { flight, ok, error } of op.results) end(model, op.token, flight, ok, error, onUrlBefore)
      return 'done'
    case 'check':
      for (const webhook of model.webhooks) {
        const [first] = webhook.failures
        if (webhook.state !== 'active' || webhook.warned || !first) continue
        if (model.nowMs - first.atMs >= 23 * HOUR_MS) mail(model, webhook, 'warning', onUrlBefore)
      }
      return 'done'
    case 'replace_daemon':
      for (const webhook of model.webhooks) if (webhook.owner === model.daemons[op.daemon]) webhook.owner = undefined
      model.daemons[op.daemon] = op.token
      return 'done'
    case 'discard':
      // What it discards counts as discarded already.
      return 'done'
    case 'subscribe':
      if (activeOf(model, op.slot)) return '409'
      model.webhooks.push({
        slot: op.slot,
        state: 'active',
        generation: 1,
        failures: [],
        warned: false,
        mails: [],
        copies: new Map(),
        owner: undefined,
      })
      return '200'
    case 'delete': {
      const webhook = model.webhooks[op.webhook]!
      if (webhook.state === 'deleted') return '404'
      webhook.state = 'deleted'
      discardWaiting(webhook)
      return '200'
    }
    case 'reactivate': {
      const webhook = model.webhooks[op.webhook]!
      if (webhook.state !== 'auto_deleted') return '404'
      if (activeOf(model, webhook.slot)) return '409'
      Object.assign(webhook, { state: 'active', generation: webhook.generation + 1, failures: [], warned: false })
      return '200'
    }
  }
}

/** An event of which nobody knows any more that the webhook wanted it gets no copy; a webhook that has gone, a discarded one. */
function route(model: Model, number: number, event: ModelEvent): void {
  event.routed = true
  for (const { webhook: index, generation } of event.wanted) {
    const webhook = model.webhooks[index]!
    if (webhook.generation !== generation) continue
    const status = webhook.state === 'active' ? 'pending' : 'discarded'
    webhook.copies.set(number, { status, attempts: 0, generation })
  }
}

function start(model: Model, op: Op & { kind: 'start' }): string {
  const webhook = model.webhooks[op.webhook]!
  const token = model.daemons[op.daemon]
  webhook.owner ??= token
  if (webhook.owner !== token) return 'of another'
  model.flights.push({
    webhook: op.webhook,
    event: op.event,
    token,
    generation: webhook.generation,
    startedAtMs: model.nowMs,
  })
  return 'started'
}

function end(model: Model, token: string, flight: Flight, ok: boolean, error: string, onUrlBefore: number[]): void {
  model.flights = model.flights.filter((other) => !isSameFlight(other, flight))
  const webhook = model.webhooks[flight.webhook]!
  const copy = webhook.copies.get(flight.event)!
  // Another daemon has the lane: the result counts for nothing, and the copy is sent again.
  if (webhook.owner !== token) return
  copy.attempts += 1
  const counts = webhook.state === 'active' && webhook.generation === flight.generation
  if (ok) {
    copy.status = 'delivered'
    if (counts) Object.assign(webhook, { failures: [], warned: false })
    return
  }
  copy.status = counts ? (copy.attempts >= ATTEMPTS ? 'exhausted' : 'pending') : 'discarded'
  if (!counts) return
  webhook.failures.push({ atMs: model.nowMs, error })
  const failingMs = model.nowMs - webhook.failures[0]!.atMs
  if (!webhook.warned && failingMs >= 12 * HOUR_MS) mail(model, webhook, 'warning', onUrlBefore)
  if (failingMs < 24 * HOUR_MS) return
  mail(model, webhook, 'deletion', onUrlBefore)
  webhook.state = 'auto_deleted'
  if (copy.status === 'pending') copy.status = 'discarded'
  discardWaiting(webhook)
}

function discardWaiting(webhook: ModelWebhook): void {
  for (const copy of webhook.copies.values()) if (copy.status === 'pending') copy.status = 'discarded'
}

function mail(model: Model, webhook: ModelWebhook, kind: ModelMail['kind'], onUrlBefore: number[]): void {
  if (kind === 'warning') webhook.warned = true
  webhook.mails.push({
    kind,
    sinceMs: webhook.failures[0]!.atMs,
    failedAttempts: webhook.failures.length,
    lastError: webhook.failures.at(-1)!.error,
    onUrl: [onUrlBefore[webhook.slot]!, countOnUrl(model)[webhook.slot]!],
  })
}

/** For each slot: active webhooks on its URL. */
export function countOnUrl(model: Model): number[] {
  return SLOTS.map(
    (slot) =>
      model.webhooks.filter((other) => other.state === 'active' && URL_OF_SLOT[other.slot] === URL_OF_SLOT[slot])
        .length,
  )
}

export function isSameFlight(a: Flight, b: Flight): boolean {
  return a.webhook === b.webhook && a.event === b.event && a.token === b.token
}

/** What of the model can be seen from outside. Of a failing record, what its row shows. */
export function visible(model: Model) {
  return model.webhooks.map(({ slot, state, failures, warned, mails, copies }) => ({
    slot,
    state,
    firstFailureMs: failures[0]?.atMs ?? null,
    failedAttempts: failures.length,
    lastError: failures.at(-1)?.error ?? null,
    warned,
    mails: mails.map(({ onUrl: _, ...rest }) => rest),
    copies: Object.fromEntries([...copies].map(([event, { status, attempts }]) => [event, `${status} ${attempts}`])),
  }))
}

export type Visible = ReturnType<typeof visible>
