/**
 * A lane whose turn is over while many others wait: what it reads then, it reads once. A second reading under way could end later than
 * what it shows as pending was sent and recorded.
 */
import { expect, test } from 'vitest'
import { Lane, type LaneDeps } from '../../daemon/lane.ts'
import type { TakenLane } from '../../daemon/lane-ownership.ts'
import { ReadAhead } from '../../daemon/read-ahead.ts'
import { RequestGates, type GateMember } from '../../daemon/request-gates.ts'
import type { SignedRequest } from '../../daemon/signed-delivery.ts'
import type { AttemptOutcome } from '../../daemon/webhook-client.ts'
import { monotonicMs, processClock } from '../../src/clock.ts'
import type { PendingDelivery } from '../../src/deliveries/delivery-queue-repository.ts'
import type { DueRequest } from '../../src/deliveries/due-rows.ts'
import type { LaneState } from '../../src/deliveries/lanes-repository.ts'
import type { AttemptResult } from '../../src/deliveries/recording-rules.ts'

const FIRST_TURN = 10
const OTHERS = 9

const STATE: LaneState = {
  webhookId: 'W',
  state: 'active',
  epoch: 1,
  cleanEpoch: 1,
  failing: false,
  eagerUntil: null,
  updatedAt: new Date(0),
  settingsChangedAt: null,
  queueMoves: 0,
}
const OK = { ok: true, class: 'ok', status: 204, error: null, answer: null, durationMs: 1 } as unknown as AttemptOutcome

const copyOf = (eventId: string): PendingDelivery =>
  ({
    ...{ webhookId: 'W', eventId, epoch: 1, dueAt: new Date(1), place: 0, attempts: 0, earlyAttempts: 0 },
    ...{ isTest: false, isMessage: false, body: Buffer.from('{}') },
  }) as PendingDelivery

const tick = () => new Promise((resolve) => setImmediate(resolve))

/** A lane that the test answers, records and reads for; one request is in flight in its daemon at a time. */
class HandLane {
  readonly slow = new Set<string>()
  readonly gates = new RequestGates({ healthy: { limit: 1, turn: 200 }, retry: { limit: 1, turn: 1 } })
  /** By `webhook-id`, in the order of their sending. */
  readonly sent: string[] = []
  readonly readings: { request: DueRequest; answer: (copies: PendingDelivery[]) => void }[] = []
  #answers: ((outcome: AttemptOutcome) => void)[] = []
  #results: AttemptResult[] = []
  readonly lane: Lane

  /** @param wasSlow the last answer of its webhook took long */
  constructor(wasSlow = false) {
    if (wasSlow) this.slow.add('W')
    const deps = {
      clock: processClock,
      gates: this.gates,
      readAhead: new ReadAhead(),
      maxInFlight: FIRST_TURN,
      afterDeath: () => false,
      slow: this.slow,
      crowded: () => false,
      attempted: () => {},
      discard: async () => 0,
      record: (result: AttemptResult) => this.#results.push(result),
      readDue: (request: DueRequest) => new Promise((answer) => this.readings.push({ request, answer })),
      client: {
        send: (request: SignedRequest, ended: (outcome: AttemptOutcome) => void) => {
          this.sent.push(request.headers['webhook-id']!)
          this.#answers.push(ended)
        },
      },
    } as unknown as LaneDeps
    const settings = { accountId: 'any', endpoint: 'https://receiver.example', signingKeys: [] }
    const taken = { token: 'T', state: STATE, readAtMs: monotonicMs(), settings } as TakenLane
    this.lane = new Lane(deps, taken, settings)
    void this.lane.run()
  }

  async answer(requests: number): Promise<void> {
    for (let n = 0; n < requests; n++) {
      this.#answers.shift()!(OK)
      await tick()
    }
  }

  /** All that was answered. */
  async record(): Promise<void> {
    for (const result of this.#results.splice(0)) this.lane.recorded(result)
    this.lane.pump()
    await tick()
  }
}

test('a lane that is told that its turn is near while it asks for its share reads once', async () => {
  const own = new HandLane()
  await tick()
  const all = Array.from({ length: FIRST_TURN + 2 }, (_, n) => `e${n}`)
  own.readings.shift()!.answer(all.slice(0, FIRST_TURN).map(copyOf))
  await tick()
  await own.answer(FIRST_TURN - 1)
  await own.record()
  const others: GateMember[] = Array.from({ length: OTHERS }, () => ({ pump() {}, prepare() {}, isReady: true }))
  for (const other of others) own.gates.tryEnter('healthy', other)
  own.lane.nudge()
  await tick()
  expect(own.readings).toHaveLength(1)

  // Whatever else asks to be read meanwhile.
  own.lane.prepare()
  own.lane.tick()
  own.lane.nudge()
  await tick()
  expect(own.readings).toHaveLength(1)
  own.readings.shift()!.answer(all.slice(FIRST_TURN - 1).map(copyOf))
  await tick()
  for (const other of others) own.gates.forget(other)
  await own.answer(1)
  await own.answer(2)
  await own.record()
  expect(own.sent).toEqual(all.map((id) => `evt_${id}`))
  own.lane.lose()
})

test('a lane of a webhook that was slow takes nothing from the healthy ones, until it has answered soon', async () => {
  const own = new HandLane(true)
  await tick()
  own.readings.shift()!.answer(['e0', 'e1', 'e2'].map(copyOf))
  await tick()
  expect([own.gates.inFlight('healthy'), own.gates.inFlight('retry')]).toEqual([0, 1])
  await own.answer(1)
  expect([own.gates.inFlight('healthy'), own.gates.inFlight('retry')]).toEqual([1, 0])
  own.lane.lose()
})

test('a lane that was told of something and finds nothing looks once more soon: who told it may be ahead of its clock', async () => {
  const own = new HandLane()
  await tick()
  own.readings.shift()!.answer([])
  await tick()
  // It listens.
  own.lane.tick()
  expect(own.readings).toHaveLength(0)
  own.lane.nudge()
  own.readings.shift()!.answer([])
  await tick()
  own.lane.tick()
  expect(own.readings).toHaveLength(1)
  own.readings.shift()!.answer([copyOf('e0')])
  await tick()
  expect(own.sent).toEqual(['evt_e0'])
  await own.answer(1)
  await own.record()
  for (const { answer } of own.readings.splice(0)) answer([])
  await tick()
  own.lane.tick()
  expect(own.readings).toHaveLength(0)
  own.lane.lose()
})
