/**
 * Who gets an event (decisions 4), as SQL over sets, and the fan-out that writes it down.
 */
import { COMMIT, type BatchPool, type BatchResult, type Send, type Statement } from '../../db/batch.ts'
import { SERVER_TIME_MS } from '../../db/server-time.ts'
import { routedStatements } from '../deliveries/packed-rows.ts'
import { handOverStatement } from '../messages/messages-repository.ts'

/** Lanes that the router takes as its own in the same transaction. */
export interface Taking {
  token: string
  webhookIds: string[]
  /** Reads what the owner needs of them, after they were taken. */
  reads: Statement[]
}

/** The router's say in which lanes it takes, once it is known which have got something, and with how many copies in all. */
export type ChooseLanes = (lanes: GivenLane[], eventIds: string[], copies: number) => Taking | undefined

export interface GivenLane {
  webhookId: string
  /** Nothing waited there before: what is fanned out now is all there is. */
  wasEmpty: boolean
}

/** Whether the webhook has been active ever since the event was recorded. For both times see `routing-time.ts`. */
const ACTIVE_SINCE = (w: string) => `${w}.active_from <= e.recorded_at`

/**
 * Whether the webhook was active when the event was recorded. The second half is for one that was auto-deleted and reactivated
 * since then: its start was written anew, and its earlier times are those between the ones in webhook_inactivity. Its creation
 * was written by a process's clock, which may be a moment ahead of the database's.
 */
const WAS_ACTIVE = (w: string) => `((${w}.inactive_from IS NULL OR e.recorded_at < ${w}.inactive_from)
    AND (${ACTIVE_SINCE(w)} OR (${w}.created_at <= e.recorded_at + INTERVAL 1 SECOND
      AND EXISTS (SELECT 1 FROM webhook_inactivity i WHERE i.webhook_id = ${w}.id AND i.inactive_from > e.recorded_at)
      AND NOT EXISTS (SELECT 1 FROM webhook_inactivity i WHERE i.webhook_id = ${w}.id
        AND i.inactive_from <= e.recorded_at AND i.active_from > e.recorded_at))))`

/**
 * The deliveries that a set of events makes: one for each webhook of the event's lab that
 * - subscribed to its type,
 * - was active when the event was recorded (both times come from the database's clock), and
 * - is bound to no party, or to one that the event's record has. An organization matches doctor and hospital alike.
 *
 * A webhook that stopped being active since then, be it again active, gets its copy under the epoch before, so that it is
 * discarded and never sent. The epoch is read without a lock: a deletion that commits in between has raised it, and the copy
 * is older.
 *
 * The order of tables and their keys are said. Where all events are of one lab, or their statistics are from when there were none,
 * MariaDB takes the lab's key for a unique one, begins with the webhooks and reads every event of the lab for each.
 */
const MATCHING_WEBHOOKS = `
  FROM events e FORCE INDEX (PRIMARY)
  STRAIGHT_JOIN webhook_events s FORCE INDEX (webhook_events_routing) ON s.lab_id = e.lab_id AND s.event_type = e.type
  STRAIGHT_JOIN webhooks w FORCE INDEX (PRIMARY) ON w.id = s.webhook_id
  WHERE e.id IN (?)
    AND ${WAS_ACTIVE('w')}
    AND (w.corporate_id IS NULL OR w.corporate_id = e.corporate_id)
    AND (w.organization_id IS NULL OR w.organization_id = e.doctor_id OR w.organization_id = e.hospital_id)`

/**
 * The daemon's time, or the server's where that is behind: a daemon that has not yet seen that the clock was set back would
 * leave its copies waiting until the old time has come again.
 */
const DUE_NOW = `LEAST(CAST(? AS DATETIME(3)), ${SERVER_TIME_MS})`

const fanOutAt = (due: string) => `
  INSERT INTO delivery_queue (webhook_id, due_at, event_id, attempts, epoch)
  SELECT w.id, ${due}, e.id, 0, CASE WHEN w.state = 'active' AND ${ACTIVE_SINCE('w')} THEN w.epoch ELSE w.epoch - 1 END
  ${MATCHING_WEBHOOKS}`

/** Values: the daemon's time, and the events. */
export const FAN_OUT = fanOutAt(DUE_NOW)

/** All copies of a batch are due at one time, by which those that have just been queued are found again. */
const SET_DUE = `SET @due = ${DUE_NOW}`
const DUE = 'CAST(@due AS DATETIME(3))'
const FAN_OUT_TOGETHER = fanOutAt(DUE)

/**
 * Of a message `e` and a webhook `w` that it is for: where the lab has a webhook without a party for the message, such webhooks alone
 * get it. One that has gone since the message was recorded counts: its copy waits no longer, and the message goes the normal way.
 */
export const GETS_MESSAGE = `((w.corporate_id IS NULL AND w.organization_id IS NULL) OR NOT EXISTS (
      SELECT 1 FROM webhook_events cs FORCE INDEX (webhook_events_routing)
      STRAIGHT_JOIN webhooks c FORCE INDEX (PRIMARY) ON c.id = cs.webhook_id
      WHERE cs.lab_id = e.lab_id AND cs.event_type = e.type
        AND c.corporate_id IS NULL AND c.organization_id IS NULL
        AND ${WAS_ACTIVE('c')}))`

const FAN_OUT_MESSAGES = `${FAN_OUT_TOGETHER} AND ${GETS_MESSAGE}`

/**
 * Lanes that have something due at that time: of each webhook it asks for one copy, where to go through the copies would cost as much as
 * a tenth of making them. These are the webhooks that the fan-out saw, since what a webhook has subscribed to never changes. Not by
 * EXISTS, of which a server may make a join that begins with the queue. A webhook comes once for each type that it has subscribed to.
 */
const GIVEN_LANES = `
  SELECT l.webhook_id, l.due_at IS NULL AS was_empty, ${DUE} AS due_at
  FROM (SELECT DISTINCT lab_id, type FROM events FORCE INDEX (PRIMARY) WHERE id IN (?)) e
  STRAIGHT_JOIN webhook_events s FORCE INDEX (webhook_events_routing) ON s.lab_id = e.lab_id AND s.event_type = e.type
  STRAIGHT_JOIN lanes l FORCE INDEX (PRIMARY) ON l.webhook_id = s.webhook_id
  WHERE (SELECT q.event_id FROM delivery_queue q FORCE INDEX (PRIMARY)
    WHERE q.webhook_id = l.webhook_id AND q.due_at = ${DUE} LIMIT 1) IS NOT NULL`

/**
 * The event of a waiting row, named `u`, as a plain read sees it: asked while that row is locked, because MariaDB gives the lock a
 * moment before it shows what its transaction has written. A fan-out in that moment would find no event, make no copy, and be
 * over. What is seen here is seen by every later statement. A subquery is not locked by the query around it, on either server.
 */
export const SEEN_EVENT = 'SELECT e.id FROM events e WHERE e.id = u.event_id'

export interface FanOutLook {
  /** Events that are left to a later fan-out. */
  exceptIds?: string[]
  /** Told which events are about to be fanned out: what fails then is theirs, what failed before was no event's fault. */
  locked?: (eventIds: string[]) => void
}

export interface Routed {
  /** Events that were fanned out. */
  events: number
  eventIds: string[]
  /** Webhooks that have something due now. */
  webhookIds: string[]
  /** Messages that nobody else sends: they are due at the gateway now. */
  normalMessages: number
  /** What the reads of lanes that were to be taken have read. */
  taken: BatchResult[]
}

/**
 * T2: fans out a batch of events in one transaction. A crash before its COMMIT leaves every event unrouted, after it every
 * copy is queued and its lane is due; there is nothing in between. Several daemons take different rows (SKIP LOCKED); the
 * unique key of the queue makes a second fan-out of one event impossible.
 *
 * Lowering the lanes' due time comes last, and always locks the row: a lane that settles at this moment holds it, and
 * either has seen our rows or lets us lower what it wrote. Lanes that nobody owns are taken by the same statement where the
 * caller wants them: the first event of a quiet webhook then waits for no further transaction.
 */
export async function routeEvents(
  batch: BatchPool,
  now: Date,
  limit: number,
  choose: ChooseLanes = () => undefined,
  { exceptIds = [], locked: onLocked }: FanOutLook = {},
): Promise<Routed> {
  return batch.transaction(async (send) => {
    const [locked] = await send([
      {
        sql: `SELECT event_id, is_message, (${SEEN_EVENT}) IS NOT NULL AS is_seen FROM unrouted_events u
              ${exceptIds.length > 0 ? 'WHERE event_id NOT IN (?) ' : ''}ORDER BY event_id LIMIT ? FOR UPDATE SKIP LOCKED`,
        values: exceptIds.length > 0 ? [exceptIds, limit] : [limit],
      },
    ])
    const waiting = await withoutUnseen(send, locked!)
    const eventIds = waiting.map((row) => row.event_id as string)
    if (eventIds.length === 0) return { events: 0, eventIds, webhookIds: [], normalMessages: 0, taken: [] }
    onLocked?.(eventIds)
    const messageIds = waiting.filter((row) => row.is_message === 1).map((row) => row.event_id as string)
    const before = routedStatements(eventIds)
    const results = await send([
      ...before,
      ...fanOutStatements(eventIds, messageIds, now),
      { sql: GIVEN_LANES, values: [eventIds] },
    ])
    const given = new Map(results.at(-1)!.map((row) => [row.webhook_id as string, row]))
    const webhookIds = [...given.keys()].sort()
    const lanes = webhookIds.map((webhookId) => ({ webhookId, wasEmpty: given.get(webhookId)!.was_empty === 1 }))
    // As it was written: a moment later the server's time is another one, and no lane may be due after what waits in it.
    const dueAt: Date = results.at(-1)![0]?.due_at
    const fannedOut = results.slice(before.length + 1, messageIds.length > 0 ? -2 : -1)
    const copies = fannedOut.reduce((sum, { affectedRows }) => sum + affectedRows, 0)
    const taking = choose(lanes, eventIds, copies)
    const ended = await send([
      ...(webhookIds.length > 0 ? [dueStatement(webhookIds, dueAt, taking)] : []),
      ...(taking?.reads ?? []),
      COMMIT,
    ])
    const normalMessages = messageIds.length > 0 ? results.at(-2)!.affectedRows : 0
    return { events: eventIds.length, eventIds, webhookIds, normalMessages, taken: taking ? ended.slice(1, -1) : [] }
  })
}

/** @returns without those that have to wait for the next fan-out. What is left of an event that there is not goes with this one. */
async function withoutUnseen(send: Send, locked: BatchResult): Promise<BatchResult[number][]> {
  const unseen = locked.filter((row) => row.is_seen === 0).map((row) => row.event_id as string)
  if (unseen.length === 0) return locked
  const [there] = await send([{ sql: 'SELECT id FROM events WHERE id IN (?) LOCK IN SHARE MODE', values: [unseen] }])
  const early = new Set(there!.map((row) => row.id as string))
  return locked.filter((row) => !early.has(row.event_id))
}

/** By the primary key, in its order, as everybody locks lanes. */
function dueStatement(webhookIds: string[], dueAt: Date, taking: Taking | undefined): Statement {
  const due = 'due_at = LEAST(COALESCE(due_at, ?), ?)'
  const where = 'WHERE webhook_id IN (?)'
  if (!taking) {
    return { sql: `UPDATE lanes FORCE INDEX (PRIMARY) SET ${due} ${where}`, values: [dueAt, dueAt, webhookIds] }
  }
  const isAll = taking.webhookIds.length === webhookIds.length
  const isTaken = isAll ? 'owner IS NULL' : 'owner IS NULL AND webhook_id IN (?)'
  return {
    sql: `UPDATE lanes FORCE INDEX (PRIMARY) SET ${due}, owner = IF(${isTaken}, ?, owner) ${where}`,
    values: [dueAt, dueAt, ...(isAll ? [] : [taking.webhookIds]), taking.token, webhookIds],
  }
}

/**
 * The first says when all are due, each of the following makes copies; where there are messages, a last one sends those that nobody
 * gets the normal way. A pooled connection keeps its variables: it is set before it is read.
 */
function fanOutStatements(eventIds: string[], messageIds: string[], now: Date): Statement[] {
  const due = { sql: SET_DUE, values: [now] }
  if (messageIds.length === 0) return [due, { sql: FAN_OUT_TOGETHER, values: [eventIds] }]
  const messages = new Set(messageIds)
  const others = eventIds.filter((id) => !messages.has(id))
  return [
    due,
    ...(others.length > 0 ? [{ sql: FAN_OUT_TOGETHER, values: [others] }] : []),
    { sql: FAN_OUT_MESSAGES, values: [messageIds] },
    handOverStatement(messageIds, now),
  ]
}

/**
 * The same for events that the caller has locked in `unrouted_events`, in the caller's transaction. Their lanes are not made due:
 * the caller says what becomes of the copies.
 */
export async function routeTheseEvents(
  send: Send,
  events: { eventId: string; isMessage: boolean }[],
  now: Date,
): Promise<void> {
  const eventIds = events.map(({ eventId }) => eventId)
  const messageIds = events.filter(({ isMessage }) => isMessage).map(({ eventId }) => eventId)
  await send([...routedStatements(eventIds), ...fanOutStatements(eventIds, messageIds, now)])
}
