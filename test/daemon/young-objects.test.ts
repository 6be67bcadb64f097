import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import type { Knex } from 'knex'
import { expect, test } from 'vitest'
import { LaneBacklog } from '../../daemon/lane-backlog.ts'
import { LaneWindow, type InFlight } from '../../daemon/lane-window.ts'
import { ReadAhead } from '../../daemon/read-ahead.ts'
import { RequestGates, type GateMember } from '../../daemon/request-gates.ts'
import type { AttemptOutcome } from '../../daemon/webhook-client.ts'
import type { PendingDelivery } from '../../src/deliveries/delivery-queue-repository.ts'

setFlagsFromString('--expose-gc')
const gc = runInNewContext('gc') as (options?: { type: 'minor' }) => void

const ROUNDS = 200
const REQUESTS = 100
/** Of each request, in the test: enough to tell them from what else grows. */
const PAYLOAD_NUMBERS = 100
const ALL_BYTES = ROUNDS * REQUESTS * PAYLOAD_NUMBERS * 8

/** What is alive at the second look is an old object from then on. */
function lookTwice(): void {
  gc({ type: 'minor' })
  gc({ type: 'minor' })
}

/** @returns by how much the old objects have grown meanwhile, those among them that nobody knows of any more included */
function oldBytesOf(work: () => void): number {
  gc()
  gc()
  const before = oldBytes()
  work()
  return oldBytes() - before
}

const oldBytes = () => getHeapSpaceStatistics().find(({ space_name: name }) => name === 'old_space')!.space_used_size

const DUE = new Date(1)
const OK = { ok: true, durationMs: 1 } as AttemptOutcome
let place = 0

function delivery(): PendingDelivery & { payload: number[] } {
  place += 1
  return {
    ...{ webhookId: 'W', eventId: String(place), dueAt: DUE, attempts: 0, earlyAttempts: 0, epoch: 1 },
    ...{ isTest: false, isMessage: false, body: NOTHING, place: 0, held: undefined },
    payload: Array.from({ length: PAYLOAD_NUMBERS }, (_, n) => n),
  }
}

const NOTHING = Buffer.alloc(0)

test('the measurement sees what becomes an old object', () => {
  const kept: unknown[] = []
  const grown = oldBytesOf(() => {
    for (let n = 0; n < REQUESTS * ROUNDS; n++) kept.push(delivery())
    lookTwice()
  })
  expect(grown).toBeGreaterThan(ALL_BYTES)
})

test('what a lane has read and sent does not become an old object, whatever of the lane is one', () => {
  const backlog = new LaneBacklog({ knex: {} as Knex, readAhead: new ReadAhead(), readDue: async () => [] }, 'W')
  const grown = oldBytesOf(() => {
    for (let round = 0; round < ROUNDS; round++) {
      backlog.give(Array.from({ length: REQUESTS }, delivery), 0)
      while (backlog.next) backlog.recorded(backlog.take())
      lookTwice()
    }
  })
  expect(backlog.isEmpty).toBe(true)
  expect(grown).toBeLessThan(ALL_BYTES / 10)
})

test('nor does what was in flight', () => {
  const window = new LaneWindow(10)
  const inFlight: InFlight[] = []
  const grown = oldBytesOf(() => {
    for (let round = 0; round < ROUNDS; round++) {
      for (let n = 0; n < REQUESTS; n++) {
        inFlight.push(window.start(delivery(), DUE))
        if (inFlight.length > 5) window.ended(inFlight.shift()!, OK)
      }
      while (inFlight.length > 0) window.ended(inFlight.shift()!, OK)
      lookTwice()
    }
  })
  expect(grown).toBeLessThan(ALL_BYTES / 10)
})

test('nor what the gates note of those that wait', () => {
  const gates = new RequestGates({ healthy: { limit: 2, turn: 200 }, retry: { limit: 1, turn: 1 } })
  const members = Array.from({ length: 6 }, (): GateMember => {
    const member: GateMember = { isReady: true, prepare: () => {}, pump: () => void gates.tryEnter('healthy', member) }
    return member
  })
  for (const member of members) gates.tryEnter('healthy', member)
  const grown = oldBytesOf(() => {
    for (let round = 0; round < ROUNDS; round++) {
      for (let n = 0; n < 10 * REQUESTS; n++) gates.leave('healthy', members[n % members.length]!, true)
      lookTwice()
    }
  })
  expect(grown).toBeLessThan(1_000_000)
})
