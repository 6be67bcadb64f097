import { expect, test } from 'vitest'
import { RequestGates, type GateMember } from '../../daemon/request-gates.ts'

function member(pump: () => void = () => {}): GateMember & { pumped: number } {
  const made = {
    pumped: 0,
    pump() {
      made.pumped += 1
      pump()
    },
  }
  return made
}

test('a gate lets in as many as its limit', () => {
  const gates = new RequestGates({ healthy: 2, retry: 1 })
  const lane = member()
  expect([1, 2, 3].map(() => gates.tryEnter('healthy', lane))).toEqual([true, true, false])
  expect(gates.inFlight('healthy')).toBe(2)
})

test('the budget of failing webhooks is their own: when it is used up the healthy ones go on', () => {
  const gates = new RequestGates({ healthy: 1, retry: 1 })
  expect(gates.tryEnter('retry', member())).toBe(true)
  expect(gates.tryEnter('retry', member())).toBe(false)
  expect(gates.tryEnter('healthy', member())).toBe(true)
})

test('a free slot goes to the one that has waited longest, one slot each', () => {
  const gates = new RequestGates({ healthy: 1, retry: 1 })
  const [first, second] = [member(), member()]
  gates.tryEnter('healthy', member())
  gates.tryEnter('healthy', first)
  gates.tryEnter('healthy', second)
  gates.leave('healthy')
  expect([first.pumped, second.pumped]).toEqual([1, 0])
})

test('a member that does not use its slot leaves the next one waiting no longer', () => {
  const gates = new RequestGates({ healthy: 2, retry: 1 })
  const [first, second] = [member(), member()]
  gates.tryEnter('healthy', member())
  gates.tryEnter('healthy', member())
  gates.tryEnter('healthy', first)
  gates.tryEnter('healthy', second)
  gates.leave('healthy')
  gates.leave('healthy')
  expect([first.pumped, second.pumped]).toEqual([1, 1])
})

test('a lane that turns slow takes its requests along, and the healthy budget is free again', () => {
  const gates = new RequestGates({ healthy: 2, retry: 1 })
  const waiting = member()
  const slow = member()
  gates.tryEnter('healthy', slow)
  gates.tryEnter('healthy', slow)
  gates.tryEnter('healthy', waiting)
  gates.move('healthy', 'retry', 2)
  expect(waiting.pumped).toBe(1)
  expect(gates.inFlight('healthy')).toBe(0)
  // Over its limit: nothing new starts there until it is below again.
  expect(gates.inFlight('retry')).toBe(2)
  gates.leave('retry')
  expect(gates.tryEnter('retry', member())).toBe(false)
  gates.leave('retry')
  expect(gates.tryEnter('retry', member())).toBe(true)
})

test('a forgotten member is not pumped', () => {
  const gates = new RequestGates({ healthy: 1, retry: 1 })
  const gone = member()
  gates.tryEnter('healthy', member())
  gates.tryEnter('healthy', gone)
  gates.forget(gone)
  gates.leave('healthy')
  expect(gone.pumped).toBe(0)
})
