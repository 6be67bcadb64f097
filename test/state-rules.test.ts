import { expect, test } from 'vitest'
import { nextState, type ActionTable } from '../src/state-rules.ts'

type State = 'open' | 'held' | 'over'
const TABLE: ActionTable<State, 'hold' | 'end' | 'reopen'> = {
  hold: { done: 'held', events: [], next: { open: 'held' } },
  end: { done: 'ended', events: [], next: { open: 'over', held: 'over' } },
  reopen: { done: 'opened again', events: [], next: { held: 'open' } },
}

test('an action leads to the state that its table says', () => {
  expect(nextState(TABLE, 'case', 'hold', 'open')).toBe('held')
  expect(nextState(TABLE, 'case', 'end', 'held')).toBe('over')
})

test.each([
  ['reopen', 'open', 'the case is open: it can not be opened again; it can be held or ended'],
  ['hold', 'held', 'the case is held: it can not be held; it can be ended or opened again'],
  ['end', 'over', 'the case is over: it can not be ended; nothing more can be done with it'],
] as const)('%s of what is %s is refused with what can be done instead', (action, state, details) => {
  expect(() => nextState(TABLE, 'case', action, state)).toThrow(
    expect.objectContaining({ message: details, code: 'invalid_state' }),
  )
})
