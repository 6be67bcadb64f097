/**
 * One lane, with a queue, a client and a recorder that the test moves by hand: what happens in which order is all that counts.
 */
import { expect, test } from 'vitest'
import { Lane, type LaneDeps } from '../../daemon/lane.ts'
import type { TakenLane } from '../../daemon/lane-ownership.ts'
import { ReadAhead } from '../../daemon/read-ahead.ts'
import { RequestGates } from '../../daemon/request-gates.ts'
import type { AttemptOutcome } from '../../daemon/webhook-client.ts'
import { monotonicMs, processClock } from '../../src/clock.ts'
import type { PendingDelivery } from '../../src/deliveries/delivery-queue-repository.ts'
import type { LaneState } from '../../src/deliveries/lanes-repository.ts'
import type { AttemptResult } from '../../src/deliveries/recording-rules.ts'

const stateOf = (over: Partial<LaneState> = {}): LaneState => ({
  webhookId: 'W',
  state: 'active',
  epoch: 5,
  cleanEpoch: 5,
  failing: false,
  eagerUntil: null,
  updatedAt: new Date(0),
  settingsChangedAt: null,
  queueMoves: 0,
  ...over,
})
const copyOf = (eventId: string, epoch: number): PendingDelivery =>
  ({
    ...{ webhookId: 'W', eventId, epoch, dueAt: new Date(1), place: 0, attempts: 0, earlyAttempts: 0 },
    ...{ isTest: false, isMessage: false, body: Buffer.from('{}') },
  }) as PendingDelivery
/** One lane at work, with what a test leaves out: a queue that is empty, and nothing to discard. */
function runLane(over: Partial<Record<keyof LaneDeps, unknown>>) {
  const deps = {
    clock: processClock,
    gates: new RequestGates({ healthy: { limit: 10, turn: 20 }, retry: { limit: 10, turn: 1 } }),
    readAhead: new ReadAhead(),
    maxInFlight: 10,
    afterDeath: () => false,
    slow: new Set(),
    crowded: () => false,
    attempted: () => {},
    readDue: async () => [],
    discard: async () => 0,
    ...over,
  } as unknown as LaneDeps
  const settings = { accountId: 'any', endpoint: 'https://receiver.example', signingKeys: [] }
  const taken = { token: 'T', state: stateOf(), readAtMs: monotonicMs(), settings } as TakenLane
  const lane = new Lane(deps, taken, settings)
  const run: { lane: Lane; outcome?: string } = { lane }
  void lane.run().then((how) => (run.outcome = how))
  return run
}

const turn = (ms = 5) => new Promise((resolve) => setTimeout(resolve, ms))

test('a deletion that comes while copies of before are discarded is discarded too, and the lane ends', async () => {
  // The first is sent; the second was put into an older epoch by an erasure.
  let queue = [copyOf('sent', 5), copyOf('erased', 0)]
  let discards = 0
  let held: Promise<void> | undefined
  let letGo = () => {}
  held = new Promise((resolve) => (letGo = resolve))
  let answer: ((outcome: AttemptOutcome) => void) | undefined
  const results: AttemptResult[] = []
  const run = runLane({
    client: { send: (_request: unknown, done: typeof answer) => (answer = done) },
    record: (result: AttemptResult) => results.push(result),
    readDue: async () => [...queue],
    discard: async ({ epoch }: LaneState, heldEventIds: string[]) => {
      discards += 1
      const old = queue.filter((copy) => copy.epoch < epoch && !heldEventIds.includes(copy.eventId))
      // One that finds nothing waits for the lane's row, which the deletion has.
      if (old.length === 0) await held
      queue = queue.filter((copy) => !old.includes(copy))
      return old.length
    },
  })
  const { lane } = run
  await turn()
  expect([discards, answer !== undefined]).toEqual([2, true])

  const deleted = () => lane.refresh(stateOf({ state: 'deleted', epoch: 6 }), monotonicMs())
  queue.push(copyOf('waiting', 5))
  deleted()
  letGo()
  held = undefined
  await turn()
  deleted()
  lane.tick()
  answer!({
    ok: true,
    class: 'ok',
    status: 204,
    error: null,
    answer: null,
    durationMs: 300,
  } as unknown as AttemptOutcome)
  queue = queue.filter(({ eventId }) => eventId !== 'sent')
  lane.recorded(results[0]!)
  lane.pump()
  const goOn = async () => {
    deleted()
    lane.tick()
    return run.outcome
  }
  await expect.poll(goOn, { timeout: 5000, interval: 100 }).toBe('dry')
  expect(queue).toEqual([])
})

test('an auto-deletion that the row told before the recorder did raises the epoch once', async () => {
  const epochs: number[] = []
  const { lane } = runLane({
    discard: async ({ epoch }: LaneState) => {
      epochs.push(epoch)
      return 0
    },
  })
  await turn()
  lane.refresh(stateOf({ state: 'auto_deleted', epoch: 6 }), monotonicMs())
  lane.deactivate()
  await turn()
  expect(new Set(epochs)).toEqual(new Set([6]))
  lane.lose()
})

test('copies of before a reactivation are not read over and over while one of them is under way, and a new one is sent', async () => {
  const queue = [copyOf('sent', 5)]
  let reads = 0
  const sent: string[] = []
  const { lane } = runLane({
    maxInFlight: 2,
    // Never answers.
    client: { send: (request: { headers: Record<string, string> }) => sent.push(request.headers['webhook-id']!) },
    record: () => {},
    readDue: async () => {
      reads += 1
      await turn(1)
      return [...queue]
    },
  })
  await turn(20)
  expect(sent).toHaveLength(1)
  queue.push(copyOf('old', 5))
  lane.refresh(stateOf({ epoch: 7 }), monotonicMs())
  lane.tick()
  reads = 0
  await turn(150)
  expect(reads).toBeLessThanOrEqual(2)

  queue.push(copyOf('new', 7))
  await turn(150)
  lane.refresh(stateOf({ epoch: 7 }), monotonicMs())
  lane.nudge()
  await turn(20)
  expect(sent).toHaveLength(2)
  lane.lose()
})

test('what waits is discarded at the deletion while another hangs, and that one when its attempt has failed', async () => {
  let queue = [copyOf('hangs', 5)]
  const held: string[][] = []
  let answer: ((outcome: AttemptOutcome) => void) | undefined
  const results: AttemptResult[] = []
  const run = runLane({
    maxInFlight: 1,
    client: { send: (_request: unknown, done: typeof answer) => (answer = done) },
    record: (result: AttemptResult) => results.push(result),
    readDue: async () => [...queue],
    discard: async ({ epoch }: LaneState, heldEventIds: string[]) => {
      held.push(heldEventIds)
      const old = queue.filter((copy) => copy.epoch < epoch && !heldEventIds.includes(copy.eventId))
      queue = queue.filter((copy) => !old.includes(copy))
      return old.length
    },
  })
  const { lane } = run
  await turn()
  expect(answer).toBeDefined()

  queue.push(copyOf('waiting', 5), copyOf('waiting too', 5))
  lane.refresh(stateOf({ state: 'deleted', epoch: 6 }), monotonicMs())
  lane.tick()
  await turn()
  expect(queue.map(({ eventId }) => eventId)).toEqual(['hangs'])
  // Then nothing is tried again while it hangs.
  for (let i = 0; i < 5; i++) {
    lane.tick()
    await turn()
  }
  expect(held).toEqual([['hangs'], ['hangs']])

  answer!({ ok: false, class: 'timeout', status: null, error: 'x', answer: null, durationMs: 10_000 } as never)
  lane.recorded(results[0]!)
  lane.pump()
  await turn()
  expect([queue, run.outcome]).toEqual([[], 'dry'])
})

test('a lane that only listens ends when its second is over, also where a tick comes just before that', async () => {
  let reads = 0
  const run = runLane({
    // A tick a second after it began is one before a second after its end.
    readDue: async () => {
      reads += 1
      await turn(100)
      return []
    },
  })
  const { lane } = run
  for (const [waitMs, expected] of [
    [1020, undefined],
    [250, 'dry'],
  ] as const) {
    await turn(waitMs)
    lane.refresh(stateOf(), monotonicMs())
    lane.tick()
    await turn()
    expect(run.outcome).toBe(expected)
  }
  expect(reads).toBe(1)
})

test('an attempt that fails while older copies are discarded is discarded behind them, also where that fails once', async () => {
  let queue = [copyOf('hangs', 5), copyOf('hangs too', 5)]
  const held: string[][] = []
  const answers: ((outcome: AttemptOutcome) => void)[] = []
  const results: AttemptResult[] = []
  let letGo = () => {}
  const under = new Promise<void>((resolve) => (letGo = resolve))
  const run = runLane({
    maxInFlight: 2,
    client: { send: (_request: unknown, done: (outcome: AttemptOutcome) => void) => answers.push(done) },
    record: (result: AttemptResult) => results.push(result),
    readDue: async () => [...queue],
    discard: async ({ epoch }: LaneState, heldEventIds: string[]) => {
      held.push(heldEventIds)
      if (held.length === 1) await under
      if (held.length === 2) throw new Error('the connection is lost')
      const old = queue.filter((copy) => copy.epoch < epoch && !heldEventIds.includes(copy.eventId))
      queue = queue.filter((copy) => !old.includes(copy))
      return old.length
    },
  })
  const { lane } = run
  const failure = { ok: false, class: 'timeout', status: null, error: 'x', answer: null, durationMs: 100 } as never
  await turn()
  expect(answers).toHaveLength(2)
  lane.refresh(stateOf({ state: 'deleted', epoch: 6 }), monotonicMs())
  lane.tick()
  answers[0]!(failure)
  lane.recorded(results[0]!)
  letGo()
  await turn()
  expect(held).toEqual([['hangs', 'hangs too'], ['hangs too']])
  const ended = async () => {
    lane.refresh(stateOf({ state: 'deleted', epoch: 6 }), monotonicMs())
    lane.tick()
    return queue.map(({ eventId }) => eventId)
  }
  await expect.poll(ended, { timeout: 2000, interval: 50 }).toEqual(['hangs too'])
  answers[1]!(failure)
  lane.recorded(results[1]!)
  lane.pump()
  await turn()
  expect([queue, run.outcome]).toEqual([[], 'dry'])
})

test('lanes whose backlogs wait for their turns read nothing until then, and each gets its turns', async () => {
  const [LANES, TURN, SENDS] = [40, 25, 4000]
  const gates = new RequestGates({ healthy: { limit: 1, turn: TURN }, retry: { limit: 1, turn: 1 } })
  const done: ((outcome: AttemptOutcome) => void)[] = []
  const ok = { ok: true, class: 'ok', status: 204, error: null, answer: null, durationMs: 1 } as AttemptOutcome
  const lanes = Array.from({ length: LANES }, () => ({ read: 0, sent: 0, reads: 0 }))
  for (const lane of lanes) {
    runLane({
      gates,
      client: {
        send: (_request: unknown, answered: (outcome: AttemptOutcome) => void) => {
          lane.sent += 1
          done.push(answered)
        },
      },
      record: () => {},
      // Behind what was read before there is always more.
      readDue: async ({ limit }: { limit: number }) => {
        lane.reads += 1
        return Array.from({ length: limit }, () => copyOf(String(lane.read++), 5))
      },
    })
  }
  let mostAhead = 0
  for (let sends = 0; sends < SENDS; sends++) {
    // What a lane reads for its turn comes while others have theirs.
    do await new Promise((resolve) => setImmediate(resolve))
    while (done.length === 0)
    mostAhead = Math.max(mostAhead, lanes.reduce((sum, { read, sent }) => sum + read - sent, 0)) // prettier-ignore
    done.pop()!({ ...ok })
  }
  // What each had for its first turn, and the turns of those that are near.
  expect(mostAhead).toBeLessThanOrEqual(LANES * 20 + 17 * TURN)
  const sent = lanes.map((lane) => lane.sent).toSorted((a, b) => a - b)
  expect(sent.at(-1)! - sent[0]!).toBeLessThanOrEqual(3 * TURN)
  for (const { reads, sent: count } of lanes) expect(reads).toBeLessThanOrEqual(2 + Math.ceil(count / TURN))
})

test('what was under way when the lane was lost is not recorded: it may be this daemon that owns it anew, and sends again', async () => {
  const answers: ((outcome: AttemptOutcome) => void)[] = []
  const results: AttemptResult[] = []
  let queue = [copyOf('recorded', 5), copyOf('under way', 5)]
  const run = runLane({
    client: { send: (_request: unknown, done: (outcome: AttemptOutcome) => void) => answers.push(done) },
    record: (result: AttemptResult) => results.push(result),
    readDue: async () => queue.splice(0),
  })
  await turn()
  const outcome = { ok: true, class: 'ok', status: 204, error: null, answer: null, durationMs: 1 } as AttemptOutcome
  answers[0]!(outcome)
  run.lane.lose()
  answers[1]!(outcome)
  await turn()
  expect(run.outcome).toBe('lost')
  expect(results.map(({ eventId }) => eventId)).toEqual(['recorded'])
  // Nor is what waits for the recorder: it asks.
  expect(results[0]!.run).toMatchObject({ isLost: true })
})

test('a webhook that answers slowly has as many under way as another, and none of them counts for the healthy', async () => {
  const queue = Array.from({ length: 40 }, (_, n) => copyOf(`e${String(n).padStart(2, '0')}`, 5))
  const gates = new RequestGates({ healthy: { limit: 20, turn: 20 }, retry: { limit: 20, turn: 1 } })
  const open: ((outcome: AttemptOutcome) => void)[] = []
  const { lane } = runLane({
    gates,
    client: { send: (_request: unknown, done: (outcome: AttemptOutcome) => void) => open.push(done) },
    record: () => {},
    readDue: async () => queue,
  })
  await turn(20)
  const answer = (durationMs: number) =>
    open.shift()!({ ok: true, class: 'ok', status: 200, durationMs } as AttemptOutcome)
  const underWay = () => [gates.inFlight('healthy'), gates.inFlight('retry')]
  expect(underWay()).toEqual([2, 0])
  for (let n = 0; n < 10; n++) answer(1500)
  expect(underWay()).toEqual([0, 10])
  answer(20)
  expect(underWay()).toEqual([10, 0])
  lane.lose()
})
