/**
 * What can be done with a record in which state, as a table: the one place to look it up, for the code, its refusals and
 * the README. Pure.
 */
import { conflict } from './errors.ts'
import type { EventType } from './events/event-types.ts'

export interface ActionRule<State extends string> {
  /** What is done to the record, as a participle: `cancelled`. */
  done: string
  /** What is told, in the transaction of the change. */
  events: readonly EventType[]
  /** The states in which it can be done, each with the state that follows. */
  next: Partial<Record<State, State>>
}

export type ActionTable<State extends string, Action extends string> = Record<Action, ActionRule<State>>

/**
 * @param noun as the refusal calls the record: `booking`
 * @returns the state that follows
 * @throws 409 that says the state and what is possible in it
 */
export function nextState<State extends string, Action extends string>(
  table: ActionTable<State, Action>,
  noun: string,
  action: Action,
  state: State,
): State {
  const next = table[action].next[state]
  if (next !== undefined) return next
  const possible = Object.values<ActionRule<State>>(table)
    .filter((rule) => rule.next[state] !== undefined)
    .map(({ done }) => done)
  throw invalidState(`the ${noun} is ${state}: it can not be ${table[action].done}; ${sentenceOf(possible)}`)
}

function sentenceOf(possible: string[]): string {
  if (possible.length === 0) return 'nothing more can be done with it'
  if (possible.length === 1) return `it can be ${possible[0]}`
  return `it can be ${possible.slice(0, -1).join(', ')} or ${possible.at(-1)}`
}

/** The one 409 for what can't be done now. */
export function invalidState(details: string) {
  return conflict(details, 'invalid_state')
}
