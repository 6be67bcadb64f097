/**
 * The fan-out of the one event that a hint has named: what it takes for this daemon is sent while its own COMMIT is under way.
 */
import type { BatchResult } from '../db/batch.ts'
import type { Database } from '../db/connection.ts'
import type { Routed } from '../src/events/event-routing.ts'
import { routeHinted } from '../src/events/hinted-event-routing.ts'
import type { TakenLane, TakingAnyAlong } from './lane-ownership.ts'

export type FannedOut = Omit<Routed, 'taken'> & {
  /** But those taken early. */
  taken: TakenLane[]
  /** Webhooks whose copies are being sent already. */
  takenEarly?: Set<string>
}

export interface Hinted {
  eventId: string
  /** Its own transaction may be under way. */
  isForetold: boolean
  /** Tells when the event is committed, if that is said before the fan-out has ended. */
  whenCommitted: (tell: () => void) => void
  along: TakingAnyAlong
  takenEarly: (taken: TakenLane[]) => void
  /** Told of the same lanes when the COMMIT has ended, however. */
  confirmed: (taken: TakenLane[]) => void
}

/** @param startedAt the database's UTC time */
export async function fanOutHinted(database: Database, hinted: Hinted, startedAt: Date): Promise<FannedOut> {
  const { eventId, isForetold, whenCommitted, along, takenEarly, confirmed } = hinted
  let taken: TakenLane[] = []
  let early: TakenLane[] = []
  let isOver = false
  const sendEarly = () => {
    if (isOver) return
    // The others have to read what is due, and would not see it yet.
    early = taken.filter(({ head }) => head)
    takenEarly(early)
  }
  const committing = (read: BatchResult[]) => {
    taken = along.read(read)
    whenCommitted(sendEarly)
  }
  try {
    const routed = await routeHinted(database.batch, eventId, startedAt, along, { committing, isForetold })
    return {
      ...routed,
      taken: taken.filter((lane) => !early.includes(lane)),
      takenEarly: new Set(early.map(({ state }) => state.webhookId)),
    }
  } finally {
    isOver = true
    confirmed(early)
  }
}
