import type { ChildProcess } from 'node:child_process'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startHttpsReceiver, type HttpsReceiver, type ReceivedRequest } from '../../scripts/https-receiver.ts'
import { monotonicMs } from '../../src/clock.ts'
import { publicEventId } from '../../src/ids.ts'
import { daemonProcesses, exited, type DaemonProcesses } from '../support/daemon-process.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld, type TestWebhook } from '../support/delivery-world.ts'
import { createTestTls } from '../support/tls.ts'

const WEBHOOKS = 12

let db: TestDatabase
let tls: Awaited<ReturnType<typeof createTestTls>>
let world: DeliveryWorld
let receiver: HttpsReceiver
let daemons: DaemonProcesses
let webhooks: TestWebhook[]
let hold: Promise<void> | undefined
const sent: string[] = []
/** Of the token that each goes by. */
const processes = new Map<string, ChildProcess>()

beforeAll(async () => {
  tls = await createTestTls()
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
  daemons = daemonProcesses(db.mysqlUrl, tls.caFile)
  receiver = await startHttpsReceiver(tls, async () => {
    await hold
    return { status: 200 }
  })
  webhooks = await Promise.all(
    Array.from({ length: WEBHOOKS }, (_, n) => world.webhook({ endpoint: `${receiver.url}/${n}` })),
  )
})
afterAll(async () => {
  daemons.close()
  await world.close()
  await receiver.close()
  await db.close()
  tls.remove()
})

async function sendEvents(count: number): Promise<void> {
  for (let n = 0; n < count; n++) sent.push((await world.event()).id)
}

const copyOf = ({ path, headers }: ReceivedRequest) => `${path.slice(1)} ${headers['webhook-id']}`
const copiesFrom = (requests: ReceivedRequest[]) => {
  const counts = new Map<string, number>()
  for (const request of requests) counts.set(copyOf(request), (counts.get(copyOf(request)) ?? 0) + 1)
  return counts
}
const repeated = () => [...copiesFrom(receiver.requests)].filter(([, times]) => times > 1)

/** Webhooks whose lanes each daemon owns. */
async function lanesByOwner(): Promise<Map<string, string[]>> {
  const rows = await db.database.knex('lanes').whereNotNull('owner').select('webhook_id', 'owner')
  const owned = new Map<string, string[]>()
  for (const { webhook_id, owner } of rows) owned.set(owner, [...(owned.get(owner) ?? []), webhook_id])
  return owned
}
const tokens = async () => (await db.database.knex('daemons').pluck('token')) as string[]

/** Under the one token that nobody goes by yet. */
async function name(process: ChildProcess): Promise<void> {
  const fresh = (await tokens()).filter((token) => !processes.has(token))
  expect(fresh).toHaveLength(1)
  processes.set(fresh[0]!, process)
}

/** The daemon that owns most, with its lanes. */
async function busiest(): Promise<{ token: string; process: ChildProcess; owned: string[] }> {
  const [token, owned] = [...(await lanesByOwner())].sort(([, a], [, b]) => b.length - a.length)[0]!
  return { token, owned, process: processes.get(token)! }
}

/** Every event reached every webhook, each copy has one attempt on record, and a webhook's attempts have no gap. */
async function expectLedger(): Promise<void> {
  const counts = copiesFrom(receiver.requests)
  for (const id of sent) for (let n = 0; n < WEBHOOKS; n++) expect(counts.has(`${n} ${publicEventId(id)}`)).toBe(true)
  for (const { id } of webhooks) {
    const attempts = await db.database.knex('attempts').where({ webhook_id: id }).orderBy('seq').select('seq', 'n')
    expect(attempts).toEqual(sent.map((_, index) => ({ seq: index + 1, n: 1 })))
  }
}

/** Holds the answers until every webhook has requests under way. @returns what is under way, and how to let go */
async function holdAnswers(): Promise<{ underWay: Set<string>; release: () => void }> {
  let release = () => {}
  hold = new Promise((resolve) => (release = resolve))
  const before = receiver.requests.length
  await sendEvents(6)
  await expect
    .poll(() => new Set(receiver.requests.slice(before).map(({ path }) => path)).size, { timeout: 15_000 })
    .toBe(WEBHOOKS)
  // And until no more come: every lane has as many under way as its window takes.
  let last = -1
  const isStill = () => last === (last = receiver.requests.length)
  await expect.poll(isStill, { timeout: 15_000, interval: 500 }).toBe(true)
  return {
    underWay: new Set(receiver.requests.slice(before).map(copyOf)),
    release: () => {
      hold = undefined
      release()
    },
  }
}

test('three daemons share the lanes; without a fault nothing is sent twice', async () => {
  for (let n = 0; n < 3; n++) await name(await daemons.start())
  await sendEvents(40)
  await receiver.arrived(WEBHOOKS * sent.length, 30_000)
  await world.settled()
  expect(repeated()).toEqual([])
  await expectLedger()
}, 60_000)

test('a daemon that was stopped and woke up changes nothing with its late results, and sends nothing of lanes that it lost', async () => {
  const { underWay, release } = await holdAnswers()
  const { token, process: frozen } = await busiest()
  frozen.kill('SIGSTOP')
  // Its own requests are answered while it sleeps; it will see that when it wakes.
  release()
  await expect.poll(tokens, { timeout: 20_000 }).not.toContain(token)
  await sendEvents(20)
  await world.settled(30_000)
  frozen.kill('SIGCONT')
  await sendEvents(20)
  // It joins again under another token, as one that owns nothing of before.
  await expect.poll(async () => (await tokens()).length, { timeout: 15_000 }).toBe(3)
  processes.delete(token)
  await name(frozen)
  await world.settled(30_000)
  expect(repeated().length).toBeGreaterThan(0)
  for (const [copy, times] of repeated()) expect([underWay.has(copy), times]).toEqual([true, 2])
  await expectLedger()
  expect((await lanesByOwner()).has(token)).toBe(false)
}, 90_000)

test('what a killed daemon had under way is tried again within 15 s, and nothing else is', async () => {
  const before = new Set(repeated().map(([copy]) => copy))
  const { underWay, release } = await holdAnswers()
  const { process: killed, owned } = await busiest()
  const paths = webhooks.flatMap(({ id }, n) => (owned.includes(id) ? [String(n)] : []))
  const ended = exited(killed)
  killed.kill('SIGKILL')
  await ended
  const killedAtMs = monotonicMs()
  const seen = receiver.requests.length
  release()
  await world.settled(30_000)
  const again = repeated().filter(([copy]) => !before.has(copy))
  expect(again.map(([, times]) => times)).toEqual(again.map(() => 2))
  expect(new Set(again.map(([copy]) => copy))).toEqual(
    new Set([...underWay].filter((copy) => paths.includes(copy.split(' ')[0]!))),
  )
  for (const request of receiver.requests.slice(seen).filter((one) => underWay.has(copyOf(one)))) {
    expect(request.atMs - killedAtMs).toBeLessThan(15_000)
  }
  await expectLedger()
}, 90_000)
