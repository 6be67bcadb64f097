import { expect, test } from 'vitest'
import { RequestGates, type GateMember } from '../../daemon/request-gates.ts'

function member(pump: () => void = () => {}) {
  const made = {
    pumped: 0,
    prepared: 0,
    isReady: true,
    pump() {
      made.pumped += 1
      pump()
    },
    prepare() {
      made.prepared += 1
    },
  }
  return made
}

const TURN = 20

/** Gates for so many requests in flight. */
const gatesFor = (healthy: number, retry = 1) =>
  new RequestGates({ healthy: { limit: healthy, turn: TURN }, retry: { limit: retry, turn: 1 } })

test('a gate lets in as many as its limit', () => {
  const gates = gatesFor(2)
  const lane = member()
  expect([1, 2, 3].map(() => gates.tryEnter('healthy', lane))).toEqual([true, true, false])
  expect(gates.inFlight('healthy')).toBe(2)
})

test('the budget of failing webhooks is their own: when it is used up the healthy ones go on', () => {
  const gates = gatesFor(1)
  expect(gates.tryEnter('retry', member())).toBe(true)
  expect(gates.tryEnter('retry', member())).toBe(false)
  expect(gates.tryEnter('healthy', member())).toBe(true)
})

test('a limit that is lowered lets nothing in until what is under way is below it; one that is raised lets in who waits', () => {
  const gates = gatesFor(3)
  const lane = member()
  for (let n = 0; n < 3; n++) gates.tryEnter('healthy', lane)
  gates.resize('healthy', { limit: 2, turn: TURN })
  expect(gates.tryEnter('healthy', lane)).toBe(false)
  gates.leave('healthy', lane, true)
  expect([gates.tryEnter('healthy', lane), lane.pumped]).toEqual([false, 0])
  gates.leave('healthy', lane, true)
  expect([gates.tryEnter('healthy', lane), lane.pumped]).toEqual([true, 1])
  expect(gates.tryEnter('healthy', lane)).toBe(false)
  gates.resize('healthy', { limit: 3, turn: TURN })
  expect([gates.tryEnter('healthy', lane), lane.pumped]).toEqual([true, 2])
})

test('a free slot goes to the one that has waited longest, one slot each', () => {
  const gates = gatesFor(1)
  const [busy, second] = [member(), member()]
  const first = member(() => gates.tryEnter('healthy', first))
  gates.tryEnter('healthy', busy)
  gates.tryEnter('healthy', first)
  gates.tryEnter('healthy', second)
  gates.leave('healthy', busy, false)
  expect([first.pumped, second.pumped]).toEqual([1, 0])
})

test('a member that does not use its slot leaves it to the next one, and each is asked once', () => {
  const gates = gatesFor(1)
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
  const gates = gatesFor(limit, limit)
  const started: string[] = []
  const flying: string[] = []
  const left = new Map<string, number>()
  const members = new Map<string, GateMember>()
  const begin = (name: string, wants: number) => {
    left.set(name, wants)
    members.set(name, { pump: () => pump(name), prepare: () => {}, isReady: true })
    pump(name)
  }
  function pump(name: string): void {
    while (left.get(name)! > 0 && gates.tryEnter(gate, members.get(name)!)) {
      left.set(name, left.get(name)! - 1)
      started.push(name)
      flying.push(name)
    }
    if (left.get(name) === 0 && !flying.includes(name)) gates.forget(members.get(name)!)
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
  // None comes again before the others have had theirs.
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
  const gates = gatesFor(2)
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
  const gates = gatesFor(1)
  const [busy, gone] = [member(), member()]
  gates.tryEnter('healthy', busy)
  gates.tryEnter('healthy', gone)
  gates.forget(gone)
  gates.leave('healthy', busy, false)
  expect(gone.pumped).toBe(0)
})

/** A gate that is full, and so many members behind each other that have had their turns and have more to send. */
function crowd(count: number, isReady = true) {
  const gates = gatesFor(1)
  const members = Array.from({ length: count }, () => Object.assign(member(), { isReady }))
  for (const one of members) {
    for (let n = 0; n < 10; n++) {
      gates.tryEnter('healthy', one)
      gates.leave('healthy', one, false)
    }
  }
  const busy = member()
  gates.tryEnter('healthy', busy)
  for (const one of members) gates.tryEnter('healthy', one)
  const end = () => gates.leave('healthy', busy, false)
  /** How many of them have been told that their turns are near. */
  const prepared = () => members.filter((one) => one.prepared > 0).length
  return { gates, members, end, prepared }
}

test('who waits reads for its turn when that is near, as much as that, and before it nothing', () => {
  const { gates, members, prepared } = crowd(30)
  expect(prepared()).toBe(5)
  expect([0, 4, 5, 29].map((n) => gates.share('healthy', members[n]!))).toEqual([TURN, TURN, 0, 0])
  // Who has nothing waiting reads what it wants: it goes before them all.
  expect(gates.share('healthy', member())).toBe(Infinity)
})

test('in its turn a member reads what is left of it, and the next ones are told together when half of those before have gone', () => {
  const { gates, members, end, prepared } = crowd(30)
  members[0]!.pump = () => void gates.tryEnter('healthy', members[0]!)
  end()
  expect(gates.inFlight('healthy')).toBe(1)
  expect(gates.share('healthy', members[0]!)).toBe(TURN - 1)
  expect(prepared()).toBe(9)
  for (const one of members.slice(1, 4)) gates.withdraw('healthy', one)
  expect(prepared()).toBe(9)
  gates.withdraw('healthy', members[4]!)
  expect(prepared()).toBe(13)
  for (const one of members.slice(5)) gates.withdraw('healthy', one)
  expect(members.map((one) => one.prepared)).toEqual(members.map(() => 1))
})

test('where few wait each reads ahead what it wants', () => {
  const { gates, members } = crowd(5)
  expect(members.map((one) => gates.share('healthy', one))).toEqual(members.map(() => Infinity))
})

test('who asks for its share and has had its turn waits for the next one', () => {
  const { gates, members, end } = crowd(30)
  gates.withdraw('healthy', members[29]!)
  expect(gates.share('healthy', members[29]!)).toBe(0)
  for (const one of members.slice(0, 29)) gates.forget(one)
  end()
  expect(members[29]!.pumped).toBe(1)
})

test('a turn begins with who is ready, and who becomes ready later goes on by itself', () => {
  const { gates, members, end } = crowd(3, false)
  const [first, second, third] = members
  third!.isReady = true
  end()
  expect(members.map(({ pumped }) => pumped)).toEqual([0, 0, 1])
  first!.isReady = true
  expect(gates.tryEnter('healthy', first!)).toBe(true)
  expect(gates.tryEnter('healthy', second!)).toBe(false)
})

test('who takes long to get ready keeps nobody from its place, and keeps its turn', () => {
  const { gates, members, end, prepared } = crowd(40, false)
  gates.look()
  expect(prepared()).toBe(5)
  gates.look()
  expect(prepared()).toBeGreaterThanOrEqual(10)
  expect(gates.share('healthy', members[0]!)).toBe(TURN)
  // One that is ready at last goes before those whose turn has not come.
  members[7]!.isReady = true
  gates.tryEnter('healthy', members[0]!)
  end()
  expect([members[0]!.pumped, members[7]!.pumped]).toEqual([1, 1])
})

test('a turn is as long as the gate says when it begins', () => {
  const { gates, members, end } = crowd(30)
  gates.resize('healthy', { limit: 1, turn: 100 })
  members[0]!.pump = () => void gates.tryEnter('healthy', members[0]!)
  end()
  expect(gates.share('healthy', members[0]!)).toBe(99)
  expect(gates.share('healthy', members[1]!)).toBe(100)
})
