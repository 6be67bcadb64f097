/**
 * Removes copies that stand next to each other in the queue, by one walk through its primary key: a third of what a look-up
 * of each costs the server, and most of a backlog ends in the order in which it was read.
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

/** @throws RangeError when an id is not one */
export function removalOf(copies: QueuedCopy[]): Removal {
  const statements: Statement[] = []
  const expected: Removal['expected'] = []
  const single: QueuedCopy[] = []
  for (const run of runsOf(copies)) {
    if (run.length < SHORTEST_RUN) {
      single.push(...run)
      continue
    }
    statements.push(runStatement(run))
    expected.push(run.length)
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

/**
 * The list decides what goes, so a copy that was routed in between later stays. As an expression it is no condition that the
 * server would look up one by one.
 */
function runStatement(run: QueuedCopy[]): Statement {
  const eventIds = run.map(eventIdOf)
  let [first, last] = [eventIds[0]!, eventIds[0]!]
  for (const id of eventIds) {
    if (id < first) first = id
    if (id > last) last = id
  }
  return {
    sql: `DELETE FROM delivery_queue WHERE webhook_id = ? AND due_at = ? AND event_id BETWEEN ? AND ? AND CONCAT(event_id) IN (?)`,
    values: [run[0]!.webhookId, run[0]!.dueAt, first, last, idList(eventIds)],
  }
}
