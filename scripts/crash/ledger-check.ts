/**
 * Judges a run by its ledger alone, as Jepsen judges a queue: everything that went in must come out, nothing else may, and
 * what comes out twice needs a reason.
 */
import { readLedger, type ClientLine, type EventLine, type KillerLine, type WebhookLine } from './ledger.ts'

/** A copy that a fault left unrecorded is sent again within 15 s; the fault itself comes this long after it at most. */
const EXPLAINED_WITHIN_MS = 11_000
/** An answer is on disk long before this, also on a machine that has much else to do. */
const RECORDED_WITHIN_MS = 1000
/** A kill is written down a moment before the receiver has read all that was sent until then. */
const READ_WITHIN_MS = 500
/** What a kill left unrecorded is sent again within this time. */
const RETRIED_WITHIN_MS = 15_000
/** Of an endpoint that fails so many are under way; the others go when one of these has ended. */
const FAILING_WINDOW = 2
/** An answer that came later than this counts as a failure, and is rightly followed by another attempt. */
const ANSWER_LIMIT_MS = 10_000
const GIVEN_UP = 'given up'

export interface Receipt {
  webhook: string
  event: string
  atMs: number
  /** undefined: never answered, or the answer never got through. */
  answered: { status: number; atMs: number } | undefined
}

export interface Evidence {
  clients: ClientLine[]
  receipts: Receipt[]
  kills: KillerLine[]
  events: EventLine[]
  webhooks: WebhookLine[]
  /**
   * Whether its sender had given it up when the answer came, by its own log: it counts from when it begins to connect, and what it sends may
   * wait long before the receiver sees it.
   */
  isGivenUp?: (receipt: Receipt) => boolean
}

export interface Verdict {
  acknowledged: number
  /** Requests without an answer: their lead may be there or not. */
  inDoubt: number
  delivered: number
  /** Acknowledged or committed, and without a 2xx at a live webhook. */
  lost: string[]
  /** Received without a committed event. */
  phantom: string[]
  explained: number
  /** Of these, by nothing but that its sender had given it up. */
  givenUp: number
  unexplained: string[]
  /** Copies that were unanswered, or answered and not surely recorded, when a daemon or the database was killed. */
  inFlight: number
  /** How long before the kill the oldest answer had come that was not recorded yet. */
  oldestUnrecordedMs: number
  /** From a kill to the next attempt of what was in flight, the slowest. */
  slowestRetryMs: number
  /** Sent again later than it must be, although there was room. */
  late: string[]
}

export function readEvidence(folder: string): Evidence {
  const receipts = new Map<number, Receipt>()
  for (const line of readLedger(folder, 'receiver')) {
    if (line.kind === 'received') {
      receipts.set(line.n, { webhook: line.webhook, event: line.event, atMs: line.atMs, answered: undefined })
    } else receipts.get(line.n)!.answered = { status: line.status, atMs: line.atMs }
  }
  return {
    clients: readLedger(folder, 'client'),
    receipts: [...receipts.values()],
    kills: readLedger(folder, 'killer'),
    events: readLedger(folder, 'events'),
    webhooks: readLedger(folder, 'webhooks'),
  }
}

export function judge(evidence: Evidence): Verdict {
  const { clients, events, webhooks, kills } = evidence
  const copies = copiesOf(evidence.receipts)
  const eventOfLead = new Map(events.map((line) => [line.lead, line]))
  const webhooksOfLab = Map.groupBy(webhooks, (line) => line.lab)
  // An orderly stop explains nothing.
  const faults = kills.filter(({ what, how }) => what !== 'api' && how !== 'stop')
  const lost = clients
    .filter(({ leadId }) => leadId !== null && !eventOfLead.has(leadId))
    .map(({ leadId }) => `lead ${leadId} was acknowledged and has no event`)
  let delivered = 0
  for (const { event, lab } of events) {
    for (const { webhook } of webhooksOfLab.get(lab) ?? []) {
      if (copies.get(`${webhook} ${event}`)?.some(isSuccess)) delivered++
      else lost.push(`event ${event} has no 2xx at webhook ${webhook}`)
    }
  }
  const known = new Set(events.map(({ event }) => event))
  const phantom = [...copies.values()].filter(([first]) => !known.has(first!.event)).map(([first]) => first!.event)
  const ofWebhooks = Map.groupBy(evidence.receipts, ({ webhook }) => webhook)
  const retries = [...copies.values()].flatMap((receipts) => retriesOf(receipts, faults))
  const again = [...copies.values()].flatMap((receipts) => repeats(receipts, faults, evidence.isGivenUp))
  return {
    acknowledged: clients.filter(({ leadId }) => leadId !== null).length,
    inDoubt: clients.filter(({ status }) => status === null || status >= 500).length,
    delivered,
    lost,
    phantom,
    explained: again.filter(({ fault }) => fault !== undefined).length,
    givenUp: again.filter(({ fault }) => fault === GIVEN_UP).length,
    unexplained: again.filter(({ fault }) => fault === undefined).map(({ name }) => name),
    oldestUnrecordedMs: Math.max(0, ...again.map(({ unrecordedMs }) => unrecordedMs)),
    inFlight: faults.reduce(
      (sum, { atMs }) => sum + evidence.receipts.filter((one) => isInFlight(one, atMs)).length,
      0,
    ),
    slowestRetryMs: retries.reduce((most, { waitMs }) => Math.max(most, waitMs), 0),
    late: retries
      .filter((retry) => isLate(retry, ofWebhooks.get(retry.again.webhook)!))
      .map(({ again: { webhook, event }, waitMs }) => `${webhook} ${event} after ${Math.round(waitMs)} ms`),
  }
}

/** Of one copy in the order in which they came. */
function copiesOf(receipts: Receipt[]): Map<string, Receipt[]> {
  const copies = Map.groupBy(receipts, ({ webhook, event }) => `${webhook} ${event}`)
  for (const list of copies.values()) list.sort((a, b) => a.atMs - b.atMs)
  return copies
}

export const isSuccess = ({ answered }: Receipt) =>
  answered !== undefined && answered.status >= 200 && answered.status <= 299

function isInFlight({ atMs, answered }: Receipt, killedAtMs: number): boolean {
  return (
    atMs <= killedAtMs + READ_WITHIN_MS && (answered === undefined || answered.atMs + RECORDED_WITHIN_MS >= killedAtMs)
  )
}

interface Repeat {
  name: string
  fault: string | undefined
  /** From the first answer to the fault. */
  unrecordedMs: number
}

/** Each 2xx of a copy after its first, with the fault that explains it. */
function repeats(
  receipts: Receipt[],
  faults: KillerLine[],
  isGivenUp: (receipt: Receipt) => boolean = () => false,
): Repeat[] {
  return receipts.filter(isSuccess).flatMap((receipt, n, successes) => {
    const before = successes[n - 1]
    if (!before) return []
    const answeredAtMs = before.answered!.atMs
    const isLate = answeredAtMs - before.atMs > ANSWER_LIMIT_MS
    const fault = faults.find(
      ({ atMs, untilMs }) =>
        untilMs + READ_WITHIN_MS >= before.atMs && atMs <= answeredAtMs + EXPLAINED_WITHIN_MS && atMs <= receipt.atMs,
    )
    const unrecordedMs = fault ? fault.atMs - answeredAtMs : 0
    const reason = isLate ? 'answered late' : (fault?.point ?? (isGivenUp(before) ? GIVEN_UP : undefined))
    return [{ name: `${receipt.webhook} ${receipt.event}`, fault: reason, unrecordedMs }]
  })
}

interface Retry {
  killedAtMs: number
  again: Receipt
  waitMs: number
}

/** For each request that a kill of a daemon left unrecorded: the next one of that copy, and how long after the kill it came. */
function retriesOf(receipts: Receipt[], faults: KillerLine[]): Retry[] {
  return receipts.flatMap((receipt, n) => {
    const again = receipts[n + 1]
    if (!again) return []
    const kill = faults.find(({ atMs, what }) => what === 'daemon' && atMs >= receipt.atMs && atMs < again.atMs)
    return kill ? [{ killedAtMs: kill.atMs, again, waitMs: again.atMs - kill.atMs }] : []
  })
}

/** By the time in which the endpoint had room for it: one that fails is given two requests at once, and its third waits for an answer. */
function isLate({ killedAtMs, again, waitMs }: Retry, ofWebhook: Receipt[]): boolean {
  if (waitMs <= RETRIED_WITHIN_MS) return false
  const changes = ofWebhook
    .filter((one) => one !== again && one.atMs >= killedAtMs && one.atMs < again.atMs)
    .flatMap(({ atMs, answered }) => [
      { atMs, by: 1 },
      { atMs: Math.min(answered?.atMs ?? Infinity, atMs + ANSWER_LIMIT_MS, again.atMs), by: -1 },
    ])
    .sort((a, b) => a.atMs - b.atMs || a.by - b.by)
  let [sinceMs, underWay, roomMs] = [killedAtMs, 0, 0]
  for (const { atMs, by } of [...changes, { atMs: again.atMs, by: 0 }]) {
    if (underWay < FAILING_WINDOW) roomMs += atMs - sinceMs
    sinceMs = atMs
    underWay += by
  }
  return roomMs > RETRIED_WITHIN_MS
}

export function summary({ lost, phantom, explained, unexplained }: Verdict): string {
  return `lost=${lost.length} phantom=${phantom.length} duplicates explained=${explained} unexplained=${unexplained.length}`
}

export function isSound({ lost, phantom, unexplained }: Verdict): boolean {
  return lost.length + phantom.length + unexplained.length === 0
}

/** The first few of each kind, for the person who looks for the cause. */
export function complaints({ lost, phantom, unexplained, late }: Verdict): string[] {
  const SHOWN = 5
  return [
    ...lost.slice(0, SHOWN).map((line) => `lost: ${line}`),
    ...phantom.slice(0, SHOWN).map((line) => `phantom: event ${line}`),
    ...unexplained.slice(0, SHOWN).map((line) => `twice without a reason: ${line}`),
    ...late.slice(0, SHOWN).map((line) => `sent again too late after a kill: ${line}`),
  ]
}
