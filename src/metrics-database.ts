/**
 * The database as a process sees it: whether it answers, how busy the pools are, and what waits in it.
 */
import type { Knex } from 'knex'
import type { Database } from '../db/connection.ts'
import { monotonicMs, type Clock } from './clock.ts'
import { readBacklog, type Backlog } from './metrics-backlog-repository.ts'
import type { Metrics, Sample } from './metrics.ts'

/** Several scrapers, or one in a hurry, ask the database no more often than that. */
const KEPT_MS = 5000
/** A scrape is answered also while the database is not. */
const GIVE_UP_MS = 1000

/** @param notReady why this process does not serve; undefined: it does */
export function registerReadiness(metrics: Metrics, notReady: () => string | undefined): void {
  metrics.gauge('lis_ready', '1 while this process serves, as /readyz says', () => [
    { value: notReady() === undefined ? 1 : 0 },
  ])
}

/** Connections in use and free, and how many wait for one. */
export function registerPools(metrics: Metrics, database: Database): void {
  metrics.gauge('lis_database_connections', 'Connections of the pool of single statements', () => {
    const pool = poolOf(database.knex)
    return [
      { labels: { state: 'used' }, value: pool.numUsed() },
      { labels: { state: 'free' }, value: pool.numFree() },
      { labels: { state: 'waited_for' }, value: pool.numPendingAcquires() },
    ]
  })
  metrics.counter('lis_database_batch_waits_total', 'Times that a batch had to wait for a connection', () => [
    { value: database.batch.waits() },
  ])
}

interface ConnectionPool {
  numUsed(): number
  numFree(): number
  numPendingAcquires(): number
}

function poolOf(knex: Knex): ConnectionPool {
  return knex.client.pool as ConnectionPool
}

/** What waits in the database. Where it does not answer these are left out, and `lis_database_up` says why. */
export function registerBacklog(metrics: Metrics, database: Database, clock: Clock): void {
  const read = keptFor(KEPT_MS, () => beforeGivingUp(readBacklog(database.knex, clock.now())))
  const gauge = (name: string, help: string, samples: (backlog: Backlog) => Sample[]) =>
    metrics.gauge(name, help, async () => {
      const backlog = await read()
      return backlog ? samples(backlog) : []
    })
  metrics.gauge('lis_database_up', '1 while the database answers', async () => [{ value: (await read()) ? 1 : 0 }])
  gauge('lis_oldest_due_seconds', 'Age of the delivery that is due the longest', ({ oldestDueSeconds }) => [
    { labels: { pool: 'healthy' }, value: oldestDueSeconds.healthy },
    { labels: { pool: 'retry' }, value: oldestDueSeconds.retry },
  ])
  gauge('lis_oldest_unrouted_seconds', 'Age of the oldest event that waits for its fan-out', (backlog) => [
    { value: backlog.oldestUnroutedSeconds },
  ])
  gauge('lis_active_webhooks', 'Webhooks that events are delivered to', (backlog) => [
    { value: backlog.activeWebhooks },
  ])
  gauge('lis_failing_webhooks', 'Active webhooks whose last attempt failed', (backlog) => [
    { value: backlog.failingWebhooks },
  ])
  gauge('lis_mails_queued', 'Mails that wait to be sent', (backlog) => [{ value: backlog.mailsQueued }])
  gauge('lis_messages_queued', 'Messages that wait to be sent the normal way', (backlog) => [
    { value: backlog.messagesQueued },
  ])
  gauge('lis_sms_queued', 'Text messages that wait to be sent and have not expired', (backlog) => [
    { value: backlog.smsQueued },
  ])
}

/** One reading serves all gauges of a scrape. */
function keptFor<T>(keptMs: number, read: () => Promise<T>): () => Promise<T> {
  let readAtMs = -Infinity
  let reading: Promise<T> | undefined
  return () => {
    if (!reading || monotonicMs() - readAtMs > keptMs) {
      readAtMs = monotonicMs()
      reading = read()
    }
    return reading
  }
}

async function beforeGivingUp<T>(work: Promise<T>): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), GIVE_UP_MS)
  })
  try {
    return await Promise.race([work, late])
  } catch {
    return undefined
  } finally {
    clearTimeout(timer)
  }
}
