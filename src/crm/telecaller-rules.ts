/**
 * Which telecaller a new lead goes to. Pure: the caller holds the lock that puts the account's assignments in a row.
 */
import type { AssignStrategy } from './crm-settings-rules.ts'

/** An active telecaller as an assignment sees it. */
export interface Candidate {
  id: string
  /** Leads that are assigned to it and not yet bookings. Counted for `least_open` only. */
  openLeads: number
}

/**
 * `round_robin`: each in turn, by id, from the one after the last. `least_open`: the one with the fewest open leads, and of
 * several the one whose turn is next. `manual`, or nobody there: null.
 * @param candidates in the order of their ids
 * @param lastId who was last; need not be among them any more
 */
export function nextTelecaller(
  strategy: AssignStrategy,
  candidates: Candidate[],
  lastId: string | null,
): string | null {
  if (strategy === 'manual') return null
  const start = candidates.findIndex(({ id }) => lastId === null || id > lastId)
  const inTurn = start < 0 ? candidates : [...candidates.slice(start), ...candidates.slice(0, start)]
  if (strategy === 'round_robin') return inTurn[0]?.id ?? null
  const fewest = Math.min(...inTurn.map(({ openLeads }) => openLeads))
  return inTurn.find(({ openLeads }) => openLeads === fewest)?.id ?? null
}
