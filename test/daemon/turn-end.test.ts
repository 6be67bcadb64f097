import { beforeEach, expect, test } from 'vitest'
import { TurnEnd, type Settling, type Writing } from '../../daemon/turn-end.ts'

let turnEnd: TurnEnd
let done: string[]

beforeEach(() => {
  turnEnd = new TurnEnd()
  done = []
})

const settling = (name: string, and = () => {}): Settling => ({
  settle: () => {
    done.push(`settle ${name}`)
    and()
  },
})

const writing = (name: string, and = () => {}): Writing => ({
  prepare: () => done.push(`prepare ${name}`),
  write: () => {
    done.push(`write ${name}`)
    and()
  },
})

const aTurn = () => new Promise((resolve) => setImmediate(resolve))

test('nothing is done in the turn itself, and then one kind after the other, in the order in which they came', async () => {
  turnEnd.write(writing('a'))
  turnEnd.settle(settling('b'))
  turnEnd.write(writing('c'))
  turnEnd.settle(settling('d'))
  await Promise.resolve()
  expect(done).toEqual([])
  await aTurn()
  expect(done).toEqual(['settle b', 'settle d', 'prepare a', 'prepare c', 'write a', 'write c'])
})

test('what is sent because of an answer leaves with the others of its turn', async () => {
  turnEnd.write(writing('a'))
  turnEnd.settle(settling('b', () => turnEnd.write(writing('c'))))
  await aTurn()
  expect(done).toEqual(['settle b', 'prepare a', 'prepare c', 'write a', 'write c'])
})

test('what comes later than its kind waits for the next turn, and is done once', async () => {
  const settlesInNextTurn = settling('c', () => turnEnd.settle(settling('d')))
  turnEnd.settle(settling('a', () => turnEnd.settle(settlesInNextTurn)))
  turnEnd.write(writing('b', () => turnEnd.write(writing('e'))))
  await aTurn()
  const first = ['settle a', 'prepare b', 'write b']
  expect(done).toEqual(first)
  await aTurn()
  const second = ['settle c', 'prepare e', 'write e']
  expect(done).toEqual([...first, ...second])
  for (let turns = 0; turns < 3; turns++) await aTurn()
  expect(done).toEqual([...first, ...second, 'settle d'])
})
