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

test('a limit that is lowered lets nothing in until what is under way is below it; one that is raised lets in who waits', () => {
  const gates = new RequestGates({ healthy: 3, retry: 1 })
  const lane = member()
  for (let n = 0; n < 3; n++) gates.tryEnter('healthy', lane)
  gates.setLimit('healthy', 2)
  expect(gates.tryEnter('healthy', lane)).toBe(false)
  gates.leave('healthy', lane, true)
  expect([gates.tryEnter('healthy', lane), lane.pumped]).toEqual([false, 0])
  gates.leave('healthy', lane, true)
  expect([gates.tryEnter('healthy', lane), lane.pumped]).toEqual([true, 1])
  expect(gates.tryEnter('healthy', lane)).toBe(false)
  gates.setLimit('healthy', 3)
  expect([gates.tryEnter('healthy', lane), lane.pumped]).toEqual([true, 2])
})

test('a free slot goes to the one that has waited longest, one slot each', () => {
  const gates = new RequestGates({ healthy: 1, retry: 1 })
  const [busy, second] = [member(), member()]
  const first = member(() => gates.tryEnter('healthy', first))
  gates.tryEnter('healthy', busy)
  gates.tryEnter('healthy', first)
  gates.tryEnter('healthy', second)
  gates.leave('healthy', busy, false)
  expect([first.pumped, second.pumped]).toEqual([1, 0])
})

test('a member that does not use its slot leaves it to the next one, and each is asked once', () => {
  const gates = new RequestGates({ healthy: 1, retry: 1 })
  const [busy, first, second] = [member(), member(), member()]
  gates.tryEnter('healthy', busy)
  gates.tryEnter('healthy', first)
  gates.tryEnter('healthy', second)
  gates.leave('healthy', busy, false)
  expect([first.pumped, second.pumped]).toEqual([1, 1])
  expect(gates.inFlight('healthy')).toBe(0)
})

/** Members with so much to send, which end one request each in turn: the order in which they start. */
function orderOf(limit: number, gate: 'healthy' | 'retry', wanted: Record<string, number>, arrivals: Record<number, string> = {}): string[] {
  const gates = new RequestGates({ healthy: limit, retry: limit })
  const started: string[] = []
  const flying: string[] = []
  const left = new Map<string, number>()
  const members = new Map<string, GateMember>()
  const begin = (name: string, wants: number) => {
    left.set(name, wants)
    members.set(name, { pump: () => pump(name) })
    pump(name)
  }
  function pump(name: string): void {
    while (left.get(name)! > 0 && gates.tryEnter(gate, members.get(name)!)) {
      left.set(name, left.get(name)! - 1)
      started.push(name)
      flying.push(name)
    }
    if (left.get(name) === 0 && !flying.includes(name)) gates.rest(members.get(name)!)
  }
  for (const [name, wants] of Object.entries(wanted)) begin(name, wants)
  for (let name = flying.shift(); name; name = flying.shift()) {
    gates.leave(gate, members.get(name)!, left.get(name)! > 0)
    pump(name)
    const arrival = arrivals[started.length]
    if (arrival) begin(arrival, 1)
  }
  return started
} // prettier-ignore

/** `a` three times: `aaa`. */
const runs = (order: string[]) => order.join('').match(/(.)\1*/g)!

test('backlogs take long turns, one behind the other, and every request has its turn', () => {
  const order = orderOf(1, 'healthy', { a: 100, b: 100, c: 100 })
  expect(order).toHaveLength(300)
  const long = runs(order).filter((run) => run.length > 2)
  // A turn is 20 requests; none comes again before the others have had theirs.
  expect(long.slice(0, 6).map((run) => run[0] + String(run.length))).toEqual(['a20', 'b20', 'c20', 'a20', 'b20', 'c20'])
})

test('whoever had nothing waiting before goes before all backlogs, also in the middle of their turns', () => {
  const order = orderOf(2, 'healthy', { a: 100, b: 100, c: 100 }, { 50: 'x', 51: 'y' })
  expect(order.slice(50, 54).sort().join('')).toMatch(/xy$/)
  expect(order).toHaveLength(302)
})

test('a small burst goes before all backlogs, and what is beyond a first turn waits behind those that wait already', () => {
  const order = orderOf(1, 'healthy', { a: 60, b: 12 })
  const [turns, rest] = [order.slice(0, 20), order.slice(20)]
  expect(turns.join('')).toBe('ab'.repeat(10))
  expect(runs(rest)).toEqual(['a'.repeat(20), 'bb', 'a'.repeat(30)])
})

test('those that fail or are slow take turns of one request', () => {
  const order = orderOf(1, 'retry', { a: 10, b: 10, c: 10 })
  expect(order.slice(6).join('')).toBe('abc'.repeat(8))
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
  gates.leave('retry', slow, false)
  expect(gates.tryEnter('retry', member())).toBe(false)
  gates.leave('retry', slow, false)
  expect(gates.tryEnter('retry', member())).toBe(true)
})

test('a forgotten member is not pumped', () => {
  const gates = new RequestGates({ healthy: 1, retry: 1 })
  const [busy, gone] = [member(), member()]
  gates.tryEnter('healthy', busy)
  gates.tryEnter('healthy', gone)
  gates.forget(gone)
  gates.leave('healthy', busy, false)
  expect(gone.pumped).toBe(0)
})
