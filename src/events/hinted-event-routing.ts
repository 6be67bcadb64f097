/**
 * The fan-out of the one event that a hint names, in one round trip and its COMMIT: what `routeEvents` decides between its round
 * trips, the database decides here.
 */
import { COMMIT, idList, sqlText, type BatchPool, type BatchResult, type Statement } from '../../db/batch.ts'
import { readCopies, type PendingDelivery } from '../deliveries/delivery-queue-repository.ts'
import { readOwned, STATE_COLUMNS, type LaneState } from '../deliveries/lanes-repository.ts'
import { FAN_OUT, SEEN_EVENT, type Routed } from './event-routing.ts'

/** Lanes that the router takes as its own, whichever have got something and nobody owns. */
export interface TakingAny {
  token: string
  /** Lanes that stay as they are. */
  exceptIds: string[]
  /** Of more lanes than that none is taken. */
  most: number
}

/** The event, or NULL where it does not wait: then every statement that names it finds nothing. */
const EVENT = sqlText('@event')

export interface HintedFanOut {
  /** Told of what was routed while the COMMIT is under way: the lanes' rows are locked, so nobody else has them. */
  committing?: (taken: BatchResult[]) => void
  /** Its own transaction may be under way: the fan-out waits for the end of that, for a second at most. */
  isForetold?: boolean
}

/** Its copies with their lanes in the order of the lanes' primary key, as everybody locks them. */
const COPIES = 'delivery_queue q FORCE INDEX (delivery_queue_delivery)'
const LANES = `${COPIES} STRAIGHT_JOIN lanes l FORCE INDEX (PRIMARY) ON l.webhook_id = q.webhook_id`

/**
 * T2 for one event that is no message. Anyone may have named it: one that is not waiting, or that another daemon routes at this
 * moment, changes nothing and, unless it is foretold, waits for nothing.
 * @returns `taken` has what `readTaken` reads of every lane that has got something
 */
export async function routeHinted(
  batch: BatchPool,
  eventId: string,
  now: Date,
  taking: TakingAny,
  { committing = () => {}, isForetold = false }: HintedFanOut = {},
): Promise<Routed> {
  return batch.transaction(async (send) => {
    const lock = lockStatement(eventId, isForetold ? 'FOR UPDATE' : 'FOR UPDATE SKIP LOCKED')
    const results = await send([lock, ...fanOutStatements(now, taking), ...readStatements(now)])
    const taken = results.slice(-2)
    // Where the event has copies, it was waiting.
    const hasCopies = taken[0]!.length > 0
    const [[deleted]] = await Promise.all([send([NOT_WAITING, COMMIT]), hasCopies && tell(committing, taken)])
    const isRouted = deleted!.affectedRows === 1
    return {
      events: isRouted ? 1 : 0,
      eventIds: isRouted ? [eventId] : [],
      webhookIds: [...new Set(taken[0]!.map((row) => row.webhook_id as string))],
      normalMessages: 0,
      taken,
    }
  })
}

/** What it throws is met together with the COMMIT. */
async function tell(committing: (taken: BatchResult[]) => void, taken: BatchResult[]): Promise<void> {
  committing(taken)
}

/** Its row is locked: who sends the copies need not wait until it is gone. */
const NOT_WAITING: Statement = { sql: 'DELETE FROM unrouted_events WHERE event_id = @event' }

/** A pooled connection keeps its variables: each is set before it is read. */
function lockStatement(eventId: string, lock: string): Statement {
  return {
    // MAX, because a query that finds no row would leave the variable as it is.
    sql: `SELECT MAX(event_id) INTO @event FROM unrouted_events u
          WHERE event_id = ? AND is_message = 0 AND (${SEEN_EVENT}) IS NOT NULL ${lock}`,
    values: [eventId],
  }
}

function fanOutStatements(now: Date, { token, exceptIds, most }: TakingAny): Statement[] {
  return [
    { sql: FAN_OUT, values: [now, EVENT] },
    {
      // ROW_COUNT: of the statement before this one.
      sql: `UPDATE ${LANES}
            SET l.due_at = LEAST(COALESCE(l.due_at, q.due_at), q.due_at),
              l.owner = IF(ROW_COUNT() > ? OR l.owner IS NOT NULL OR l.webhook_id IN (?), l.owner, ?)
            WHERE q.event_id = @event`,
      values: [most, idList(exceptIds), token],
    },
  ]
}

/**
 * After the lanes are locked, so that what others have queued is seen. The order of tables is said: statistics of a queue are of no
 * use. A lane's row comes once for each of its secrets, or without one, in no order: of so few, who reads them sorts them sooner.
 */
function readStatements(now: Date): Statement[] {
  return [
    {
      sql: `SELECT ${STATE_COLUMNS.join(', ')}, l.owner, w.id, w.endpoint, s.id AS secret_id, s.sealed, s.expires_at,
              q.event_id, q.due_at, q.attempts, q.early_attempts, q.is_test, q.epoch AS copy_epoch,
              q.epoch = w.epoch AND NOT EXISTS (
                SELECT 1 FROM delivery_queue o WHERE o.webhook_id = q.webhook_id AND o.event_id <> q.event_id
              ) AS is_head
            FROM ${LANES} STRAIGHT_JOIN webhooks w ON w.id = q.webhook_id
            LEFT JOIN webhook_secrets s ON s.webhook_id = q.webhook_id AND (s.expires_at IS NULL OR s.expires_at > ?)
            WHERE q.event_id = @event`,
      values: [now],
    },
    { sql: 'SELECT body, is_message FROM event_bodies WHERE event_id = @event' },
  ]
}

/** What the owner of lanes needs of them. */
export interface ReadOfTaken {
  states: LaneState[]
  /** For `openSettings`. */
  settings: BatchResult[]
  /** The event's copies for those of them where nothing else waits, if they may be sent. */
  copies: PendingDelivery[]
}

/** @param isFree of what is this daemon's by its row: nothing in this process runs it */
export function readTaken(
  read: BatchResult[],
  { token, most }: Pick<TakingAny, 'token' | 'most'>,
  isFree: (webhookId: string) => boolean,
): ReadOfTaken {
  const [rows, [body]] = read as [BatchResult, BatchResult]
  const lanes = Map.groupBy(rows, (row) => row.webhook_id as string)
  const isTaken = (row: Row) => row.owner === token && isFree(row.webhook_id)
  // Of too many lanes, none was to be taken.
  const own = !body || lanes.size > most ? [] : [...lanes.values()].filter(([row]) => isTaken(row!))
  const taken = own.map(([row]) => row!) as BatchResult
  const secrets = own.flatMap((ofLane) => ofLane.filter(({ sealed }) => sealed !== null).sort(bySecret)) as BatchResult
  const heads = taken.filter((row) => row.is_head === 1)
  const copies = readCopies(heads.map((row) => ({ ...row, ...body, epoch: row.copy_epoch })))
  return { states: readOwned(taken), settings: [taken, secrets], copies: [...copies.values()].flat() }
}

type Row = BatchResult[number]

/** As `settingsStatements` reads them: the current one first, then the one that is valid for the shortest time. */
function bySecret(a: Row, b: Row): number {
  return (a.expires_at?.getTime() ?? 0) - (b.expires_at?.getTime() ?? 0) || (a.secret_id < b.secret_id ? 1 : -1)
}
