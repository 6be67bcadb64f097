/**
 * One suite for both job stores: what the parts of Agenda that we use rely on. MongoDB's half runs where MONGODB_URL names a
 * server (test/servers/ferretdb.sh starts one).
 */
import { MongoClient } from 'mongodb'
import { randomUUID } from 'node:crypto'
import type { JobRepository } from 'agenda'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { AgendaMemoryStore } from '../../daemon/agenda-memory-store.ts'
import { connectMongoJobStore, type MongoJobStore } from '../../daemon/mongo-job-store.ts'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { monotonicMs } from '../../src/clock.ts'
import { createLogger } from '../../src/logger.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { startTcpProxy, type TcpProxy } from '../support/tcp-proxy.ts'
import { createTestTls } from '../support/tls.ts'

const log = createLogger('daemon', 'silent')
const MONGODB_URL = process.env.MONGODB_URL
const WITHOUT_MONGODB = 'skipped: MONGODB_URL names no server; the gate starts one with test/servers/ferretdb.sh'
if (!MONGODB_URL) console.log(WITHOUT_MONGODB)

/** A database of its own on that server. */
function ownMongoUrl(): string {
  const url = new URL(MONGODB_URL!)
  url.pathname = `/lis_${randomUUID().slice(0, 8)}`
  return url.href
}

interface StoreUnderTest {
  store: JobRepository
  close(): Promise<void>
}

async function openMemory(): Promise<StoreUnderTest> {
  return { store: new AgendaMemoryStore(), close: async () => {} }
}

async function openMongo(): Promise<StoreUnderTest> {
  const url = ownMongoUrl()
  const opened: MongoJobStore = (await connectMongoJobStore(url, log, () => false))!
  return {
    store: opened.backend.repository,
    close: async () => {
      await opened.close()
      await dropMongo(url)
    },
  }
}

async function dropMongo(url: string): Promise<void> {
  const client = await MongoClient.connect(url)
  await client.db().dropDatabase()
  await client.close()
}

const stores: [string, () => Promise<StoreUnderTest>][] = [['embedded', openMemory]]
if (MONGODB_URL) stores.push(['MongoDB', openMongo])
else
  console.log(
    'job-store: MONGODB_URL is not set, MongoDB is left out (test/servers/ferretdb.sh starts a server for it)',
  )

describe.each(stores)('the %s job store', (_name, open) => {
  const NOW = new Date()
  const LONG_AGO = new Date(0)
  const LATER = new Date(NOW.getTime() + 60_000)
  let opened: StoreUnderTest
  let store: JobRepository

  beforeEach(async () => {
    opened = await open()
    store = opened.store
    return () => opened.close()
  })

  const job = (name: string, webhook: string, nextRunAt = NOW) => ({
    name,
    priority: 0,
    nextRunAt,
    type: 'normal' as const,
    data: { webhook },
  })
  const unique = (webhook: string) => ({
    ...job('deliver', webhook),
    unique: { 'data.webhook': webhook },
    uniqueOpts: { insertOnly: true },
  })
  const next = (name = 'deliver', deadline = LONG_AGO) =>
    store.getNextJobToRun(name, NOW, deadline, undefined, undefined)
  const save = (saved: object) => store.saveJob(saved as Parameters<JobRepository['saveJob']>[0], undefined)

  test('gives a job to one taker only, and again after it is unlocked', async () => {
    const saved = await save(job('deliver', 'a'))
    expect(String((await next())?._id)).toBe(String(saved._id))
    expect(await next()).toBeUndefined()
    await store.unlockJobs([saved._id!])
    expect(String((await next())?._id)).toBe(String(saved._id))
  })

  // One after another: not every server with MongoDB's protocol takes a document atomically. A job that two daemons take
  // does no harm, because the lane is owned by a row of the database.
  test('gives each of many jobs to one taker', async () => {
    for (let n = 0; n < 30; n++) await save(unique(`w${n}`))
    const taken = []
    for (let n = 0; n < 60; n++) taken.push(await next())
    const webhooks = taken.flatMap((found) => (found ? [(found.data as { webhook: string }).webhook] : []))
    expect(webhooks).toHaveLength(30)
    expect(new Set(webhooks).size).toBe(30)
  })

  test('gives a job whose lock has expired to the next taker', async () => {
    const saved = await save(job('deliver', 'a'))
    await next()
    expect(String((await next('deliver', LATER))?._id)).toBe(String(saved._id))
  })

  test('a touch keeps a lock alive', async () => {
    await save(job('deliver', 'a'))
    const taken = (await next())!
    const touched = new Date(NOW.getTime() + 120_000)
    await store.saveJobState({ ...taken, lockedAt: touched }, undefined)
    expect(await next('deliver', LATER)).toBeUndefined()
  })

  test('gives no job of another name, none that is not due and none that is disabled', async () => {
    await save(job('retry', 'a'))
    await save(job('deliver', 'b', LATER))
    const off = await save(job('deliver', 'c'))
    expect(await store.disableJobs({ id: off._id! })).toBe(1)
    expect(await next()).toBeUndefined()
    expect(await store.enableJobs({ id: off._id! })).toBe(1)
    expect(String((await next())?._id)).toBe(String(off._id))
  })

  test('a unique save that only inserts leaves a running job and its lock alone', async () => {
    const saved = await save(unique('a'))
    await next()
    expect(String((await save(unique('a')))._id)).toBe(String(saved._id))
    expect((await store.getJobById(String(saved._id)))?.lockedAt).toBeInstanceOf(Date)
    expect((await store.queryJobs()).total).toBe(1)
  })

  test('of many unique saves at once one job is there', async () => {
    const results = await Promise.allSettled(Array.from({ length: 50 }, () => save(unique('a'))))
    expect((await store.queryJobs()).total).toBe(1)
    for (const result of results) if (result.status === 'rejected') expect(result.reason.code).toBe(11000)
  })

  test('removes, lists and counts what it is asked for', async () => {
    for (const webhook of ['a', 'b', 'c']) await save(job('deliver', webhook))
    const other = await save(job('retry', 'd'))
    expect(await store.removeJobs({ id: other._id! })).toBe(1)
    expect(await store.getDistinctJobNames()).toEqual(['deliver'])
    expect((await store.queryJobs({ name: 'deliver' })).total).toBe(3)
    expect(await store.purgeAllJobs()).toBe(3)
    expect(await next()).toBeUndefined()
  })

  test('saving the state of a job that was removed meanwhile brings it not back', async () => {
    await save(job('deliver', 'a'))
    const taken = (await next())!
    await store.removeJobs({ id: taken._id! })
    await store.saveJobState(taken, undefined).catch(() => {})
    expect((await store.queryJobs()).total).toBe(0)
  })
})

describe.runIf(MONGODB_URL)(`daemons whose jobs are in MongoDB${MONGODB_URL ? '' : ` (${WITHOUT_MONGODB})`}`, () => {
  const url = MONGODB_URL ? ownMongoUrl() : ''
  let db: TestDatabase
  let tls: Awaited<ReturnType<typeof createTestTls>>
  let world: DeliveryWorld
  let receiver: HttpsReceiver
  let proxy: TcpProxy
  let isFailing = false

  beforeAll(async () => {
    tls = await createTestTls()
    db = await openTestDatabase()
    world = await new DeliveryWorld(db.database).open()
    receiver = await startHttpsReceiver(tls, () => ({ status: isFailing ? 500 : 204 }))
    proxy = await startTcpProxy(Number(new URL(url).port))
    const proxied = new URL(url)
    proxied.port = String(proxy.port)
    for (let n = 0; n < 3; n++)
      await world.daemon(tls.caFile, { MONGODB_URL: proxied.href, RETRY_SCHEDULE: '2,2,2,2,2' })
    for (let n = 0; n < 6; n++) await world.webhook({ endpoint: `${receiver.url}/${n}` })
  })
  afterAll(async () => {
    await world.close()
    await proxy.close()
    await receiver.close()
    await db.close()
    await dropMongo(url)
    tls.remove()
  })

  /** Events for so long; lanes get dry in between, and are taken anew. @returns the slowest way to a receipt, in ms */
  async function deliver(forMs: number): Promise<number> {
    const recordedAtMs = new Map<string, number>()
    const untilMs = monotonicMs() + forMs
    while (monotonicMs() < untilMs) {
      const event = await world.event()
      recordedAtMs.set(`evt_${event.id}`, monotonicMs())
      await new Promise((resolve) => setTimeout(resolve, 1300))
    }
    const own = () => receiver.requests.filter(({ headers }) => recordedAtMs.has(headers['webhook-id'] as string))
    await expect.poll(() => own().length, { timeout: 20_000 }).toBeGreaterThanOrEqual(recordedAtMs.size * 6)
    await world.settled()
    const copies = own()
    expect(new Set(copies.map(({ path, headers }) => `${path} ${headers['webhook-id']}`)).size).toBe(copies.length)
    expect(copies).toHaveLength(recordedAtMs.size * 6)
    return Math.max(...copies.map(({ headers, atMs }) => atMs - recordedAtMs.get(headers['webhook-id'] as string)!))
  }

  test('share the lanes with no duplicate, and their jobs are really there', async () => {
    const client = await MongoClient.connect(url)
    const jobs = () => client.db().collection('agendaJobs').countDocuments({ name: 'retry-webhook' })
    // The lane that a fan-out takes runs where it is: a job is for one that is offered, as for its retry.
    isFailing = true
    await world.event()
    await expect.poll(jobs, { timeout: 20_000 }).toBeGreaterThan(0)
    isFailing = false
    await world.settled()
    await client.close()
    await deliver(4000)
  })

  test.each([
    ['is stopped', () => (proxy.mode = 'refuse')],
    ['does not answer', () => (proxy.mode = 'hold')],
  ])(
    'lose nothing and delay no event by more than 5 s while the store %s, and use it again afterwards',
    async (_name, breakIt) => {
      breakIt()
      expect(await deliver(6000)).toBeLessThan(5000)
      proxy.mode = 'pass'
      expect(await deliver(3000)).toBeLessThan(5000)
    },
  )

  test('lose nothing when the store is wiped', async () => {
    const client = await MongoClient.connect(url)
    const wiping = setInterval(
      () =>
        void client
          .db()
          .collection('agendaJobs')
          .deleteMany({})
          .catch(() => {}),
      100,
    )
    expect(await deliver(5000)).toBeLessThan(5000)
    clearInterval(wiping)
    await client.close()
  })

  // What Agenda leaves behind when its process is killed: locked, and due far ahead.
  test('deliver in time where every lane has a job that somebody who is gone has locked', async () => {
    const client = await MongoClient.connect(url)
    const jobs = client.db().collection('agendaJobs')
    const now = Date.now()
    const stale = (webhook: string) => ({
      ...{ name: 'deliver-webhook', type: 'normal', priority: 0, data: { webhook } },
      ...{ lockedAt: new Date(now), nextRunAt: new Date(now + 600_000), lastModifiedBy: 'a daemon of before' },
    })
    const webhooks: string[] = await db.database.knex('webhooks').pluck('id')
    await jobs.deleteMany({})
    // One that a daemon has saved meanwhile stays: the key is unique.
    await jobs.insertMany(webhooks.map(stale), { ordered: false }).catch(() => {})
    expect(await deliver(3000)).toBeLessThan(5000)
    await client.close()
  })
})
