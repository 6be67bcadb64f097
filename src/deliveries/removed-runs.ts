/**
 * Removes copies that stand next to each other in the queue, by one walk through its primary key: a third of what a look-up
 * of each costs the server, and most of a backlog ends in the order in which it was read.
 *
 * Where nothing stood between them when they were read, the first and the last say it all, and the number of rows found says whether it
 * still holds: what has come in between since then is one row more, and the caller rolls back. It could be hidden only by a copy
 * that has gone from there. Whoever takes one out of a queue or gives it another time says so in the lane's row
 * (`queueMovedStatement`), and the caller has made sure, under that row's lock, that nobody has.
 */
import { idList, type BatchResult, type Statement } from '../../db/batch.ts'
import { removedStatements } from './packed-rows.ts'

export interface QueuedCopy {
  webhookId: string
  eventId: string
  /** With the two others the row's primary key. */
  dueAt: Date
  /** In the order in which its lane has read, from which is seen what stands close together. */
  place: number
}

export interface Removal {
  statements: Statement[]
  /** How many rows each of them finds when all is as it was read; undefined: any number is right. */
  expected: (number | undefined)[]
}

// Made once: a function that is made anew for each batch is compiled anew after each look through the heap.
const webhookIdOf = ({ webhookId }: QueuedCopy) => webhookId
const eventIdOf = ({ eventId }: QueuedCopy) => eventId
const byPlace = (a: QueuedCopy, b: QueuedCopy) => a.place - b.place

/** A shorter run costs more as a statement of its own than its rows cost in the common one. */
const SHORTEST_RUN = 8
/** What was not recorded in between is walked over, so that a few requests under way do not cut a run. */
const WIDEST_GAP = 16
/** So many without anything in between are a statement of their own: the list of their ids costs as much. */
const SHORTEST_STRETCH = 12

/** @throws RangeError when an id is not one */
export function removalOf(copies: QueuedCopy[]): Removal {
  const statements: Statement[] = []
  const expected: Removal['expected'] = []
  const single: QueuedCopy[] = []
  const remove = (run: QueuedCopy[], statement: Statement) => {
    statements.push(statement)
    expected.push(run.length)
  }
  for (const run of runsOf(copies)) {
    const { stretches, others } = stretchesOf(run)
    for (const stretch of stretches) remove(stretch, stretchStatement(stretch))
    if (others.length < SHORTEST_RUN) single.push(...others)
    else remove(others, runStatement(others))
  }
  const others = removedStatements(single)
  return { statements: [...statements, ...others], expected: [...expected, ...others.map(() => undefined)] }
}

/** Whether the statements have found what they were to find. Otherwise some row has been given another due time meanwhile. */
export function isRemoved({ expected }: Removal, results: BatchResult[]): boolean {
  return expected.every((rows, n) => rows === undefined || results[n]!.affectedRows === rows)
}

function runsOf(copies: QueuedCopy[]): QueuedCopy[][] {
  const runs: QueuedCopy[][] = []
  for (const ofWebhook of Map.groupBy(copies, webhookIdOf).values()) {
    ofWebhook.sort(byPlace)
    let last: QueuedCopy | undefined
    for (const copy of ofWebhook) {
      if (last && copy.place - last.place <= WIDEST_GAP && copy.dueAt.getTime() === last.dueAt.getTime()) {
        runs.at(-1)!.push(copy)
      } else runs.push([copy])
      last = copy
    }
  }
  return runs
}

/** @returns what stands in a run without anything in between, and what is left of it */
function stretchesOf(run: QueuedCopy[]): { stretches: QueuedCopy[][]; others: QueuedCopy[] } {
  const stretches: QueuedCopy[][] = []
  const others: QueuedCopy[] = []
  for (let from = 0, to = 1; from < run.length; from = to, to++) {
    while (to < run.length && run[to]!.place === run[to - 1]!.place + 1) to++
    if (to - from >= SHORTEST_STRETCH) stretches.push(run.slice(from, to))
    else for (let at = from; at < to; at++) others.push(run[at]!)
  }
  return { stretches, others }
}

const RUN = 'DELETE FROM delivery_queue WHERE webhook_id = ? AND due_at = ? AND event_id BETWEEN ? AND ?'

function stretchStatement(stretch: QueuedCopy[]): Statement {
  return { sql: RUN, values: boundsOf(stretch) }
}

/**
 * The list decides what goes, so a copy that was routed in between later stays. As an expression it is no condition that the
 * server would look up one by one.
 */
function runStatement(run: QueuedCopy[]): Statement {
  return { sql: `${RUN} AND CONCAT(event_id) IN (?)`, values: [...boundsOf(run), idList(run.map(eventIdOf))] }
}

/** Copies that were read ahead of their time are sent in another order than they stand in. */
function boundsOf(run: QueuedCopy[]): unknown[] {
  const [{ webhookId, dueAt, eventId }] = run as [QueuedCopy]
  let [first, last] = [eventId, eventId]
  for (const { eventId: id } of run) {
    if (id < first) first = id
    if (id > last) last = id
  }
  return [webhookId, dueAt, first, last]
}
