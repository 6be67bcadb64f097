/**
 * Metrics of real processes and daemons, read as Prometheus reads them.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { createMetrics, Tally } from '../../src/metrics.ts'
import { newId } from '../../src/ids.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld, SECRETS_KEY } from '../support/delivery-world.ts'
import { scrape } from '../support/scrape.ts'
import { createTestTls } from '../support/tls.ts'

let db: TestDatabase
let world: DeliveryWorld
let tls: Awaited<ReturnType<typeof createTestTls>>
let receiver: HttpsReceiver

beforeAll(async () => {
  tls = await createTestTls()
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
  receiver = await startHttpsReceiver(tls, ({ path }) => ({ status: path.startsWith('/down') ? 503 : 204 }))
})
afterAll(async () => {
  await world.close()
  await receiver.close()
  await db.close()
  tls.remove()
})

const knex = () => db.database.knex

describe('a daemon', () => {
  test('counts attempts by what came of them, and how late each delivery was', async () => {
    const daemon = await world.daemon(tls.caFile, { RETRY_SCHEDULE: '0.1' })
    await world.webhook({ endpoint: receiver.url })
    await world.webhook({ endpoint: new URL('/down', receiver.url).href })
    const quiet = await scrape(daemon.port)
    expect(quiet.get('lis_deliveries_exhausted_total')).toBe(0)
    for (let i = 0; i < 3; i++) await world.event()
    await vi.waitFor(
      async () => {
        const samples = await scrape(daemon.port)
        expect(samples.get('lis_delivery_attempts_total{class="ok"}')).toBe(3)
        expect(samples.get('lis_delivery_attempts_total{class="http_status"}')).toBe(6)
        expect(samples.get('lis_deliveries_exhausted_total')).toBe(3)
      },
      { timeout: 10_000, interval: 50 },
    )
    const samples = await scrape(daemon.port)
    expect(samples.get('lis_delivery_latency_seconds_count')).toBe(3)
    expect(samples.get('lis_delivery_latency_seconds_bucket{le="+Inf"}')).toBe(3)
    expect(samples.get('lis_webhook_health_changes_total{to="failing"}')).toBe(1)
    expect(samples.get('lis_deliveries_in_flight{pool="healthy"}')).toBe(0)
    expect(samples.get('lis_tick_age_seconds')).toBeLessThan(10)
    expect(samples.get('lis_database_up')).toBe(1)
    await daemon.stop()
  })

  test('says how long what is due has waited where nobody takes it, healthy and failing apart', async () => {
    const [healthy, failing] = [
      await world.webhook({ endpoint: receiver.url, events: ['bill.created'] }),
      await world.webhook({ endpoint: receiver.url, events: ['bill.created'] }),
    ]
    const ago = (seconds: number) => new Date(world.clock.nowMs() - seconds * 1000)
    // The owner lives and does nothing: as when only the loop that claims has stopped.
    await knex()('daemons').insert({ token: newId(1), hint_host: '127.0.0.1', hint_port: 1, started_at: ago(0) })
    const wait = async (webhookId: string, seconds: number) => {
      await knex()('lanes')
        .where({ webhook_id: webhookId })
        .update({ due_at: ago(seconds), owner: newId(1) })
      await knex()('delivery_queue').insert({
        webhook_id: webhookId,
        event_id: newId(1),
        due_at: ago(seconds),
        epoch: 1,
      })
    }
    await knex()('webhooks')
      .where({ id: failing.id })
      .update({ first_failure_at: ago(900) })
    await wait(healthy.id, 90)
    await wait(failing.id, 600)
    await knex()('mails').delete()
    const daemon = await world.daemon(tls.caFile)
    const samples = await scrape(daemon.port)
    await daemon.stop()
    expect(samples.get('lis_oldest_due_seconds{pool="healthy"}')).toBeGreaterThanOrEqual(90)
    expect(samples.get('lis_oldest_due_seconds{pool="healthy"}')).toBeLessThan(300)
    expect(samples.get('lis_oldest_due_seconds{pool="retry"}')).toBeGreaterThanOrEqual(600)
    expect(samples.get('lis_failing_webhooks')).toBeGreaterThanOrEqual(1)
    await knex()('delivery_queue').delete()
  })

  test('has no more samples with ten thousand webhooks, and none of their ids or addresses', async () => {
    const daemon = await world.daemon(tls.caFile)
    const before = await scrape(daemon.port)
    const now = world.clock.now()
    const rows = Array.from({ length: 10_000 }, (_, i) => ({
      id: newId(i),
      account_id: world.accountId,
      lab_id: world.labId,
      endpoint: `https://many.example/${i}`,
      state: 'active',
      active_from: now,
      created_at: now,
      updated_at: now,
      first_failure_at: now,
    }))
    await knex().batchInsert('webhooks', rows, 1000)
    const samples = await scrape(daemon.port)
    await daemon.stop()
    await knex()('webhooks').where('endpoint', 'like', 'https://many.%').delete()
    expect(samples.size).toBe(before.size)
    expect(samples.size).toBeLessThan(1000)
    for (const name of samples.keys()) expect(name).not.toMatch(/https?:|[0-9a-hjkmnp-tv-z]{26}/)
  })

  test('answers while its database does not, and says so', async () => {
    const own = await openTestDatabase()
    const elsewhere = await new DeliveryWorld(own.database).open()
    const daemon = await elsewhere.daemon(tls.caFile)
    await own.database.knex.raw('RENAME TABLE mails TO mails_away')
    const samples = await scrape(daemon.port)
    await own.database.knex.raw('RENAME TABLE mails_away TO mails')
    expect(samples.get('lis_database_up')).toBe(0)
    expect(samples.has('lis_mails_queued')).toBe(false)
    expect(samples.has('lis_tick_age_seconds')).toBe(true)
    await elsewhere.close()
    await own.close()
  })
})

describe('an API process', () => {
  test(
    'shows its metrics on METRICS_PORT and never on its own, and counts answers by operation and status',
    { timeout: 90_000 },
    async () => {
      const child = spawn(process.execPath, ['src/server.ts'], {
        env: {
          ...process.env,
          NODE_ENV: 'test',
          MYSQL_URL: db.mysqlUrl,
          SECRETS_KEY: SECRETS_KEY.toString('base64'),
          DATA_DIR: '/nonexistent',
          PORT: '0',
          METRICS_PORT: '0',
          LOG_LEVEL: 'info',
        },
        stdio: ['ignore', 'pipe', 'pipe'],
      })
      let said = ''
      const hear = (data: Buffer) => (said += data)
      child.stdout.on('data', hear)
      child.stderr.on('data', hear)
      try {
        const heard = (pattern: RegExp) =>
          vi.waitFor(() => Number(pattern.exec(said)![1]), { timeout: 60_000, interval: 20 })
        const port = await heard(/^listening (\d+)$/m)
        const metricsPort = await heard(/"port":(\d+)[^\n]*"event":"api.metrics_listening"/)
        await fetch(`http://127.0.0.1:${port}/client/labs`)
        await fetch(`http://127.0.0.1:${port}/client/labs`)
        await fetch(`http://127.0.0.1:${port}/nowhere/${newId(1)}`)
        expect((await fetch(`http://127.0.0.1:${port}/metrics`)).status).toBe(404)
        expect((await fetch(`http://127.0.0.1:${metricsPort}/livez`)).status).toBe(404)
        const samples = await vi.waitFor(async () => {
          const found = await scrape(metricsPort)
          expect(found.get('lis_http_request_seconds_count')).toBe(4)
          return found
        })
        expect(samples.get('lis_http_requests_total{operation="listLabs",status="401"}')).toBe(2)
        expect(samples.get('lis_http_requests_total{operation="none",status="404"}')).toBe(2)
        expect(samples.get('lis_clock_jumps_total')).toBe(0)
        expect(samples.get('lis_ready')).toBe(1)
        // What waits is seen also where every daemon is gone.
        expect(samples.get('lis_oldest_due_seconds{pool="healthy"}')).toBe(0)
        // Twenty looks at it a second, not a hundred, since it was shown last.
        await new Promise((resolve) => setTimeout(resolve, 250))
        expect((await scrape(metricsPort)).get('nodejs_eventloop_lag_p99_seconds')).toBeGreaterThan(0.045)
        expect(samples.get('lis_database_connections{state="waited_for"}')).toBe(0)
      } finally {
        child.kill('SIGTERM')
        await once(child, 'exit')
      }
    },
  )
})

describe('a tally', () => {
  test('counts a value in the first bucket whose bound is not below it, and in all above', async () => {
    const tally = new Tally([1, 2])
    for (const value of [0.5, 1, 1.5, 9]) tally.add(value)
    const metrics = createMetrics(false)
    metrics.histogram('lis_test_seconds', 'A test', () => [{ labels: { kind: 'a' }, tally }])
    const lines = (await metrics.read()).text.trim().split('\n')
    expect(lines).toEqual([
      '# HELP lis_test_seconds A test',
      '# TYPE lis_test_seconds histogram',
      'lis_test_seconds_bucket{kind="a",le="1"} 2',
      'lis_test_seconds_bucket{kind="a",le="2"} 3',
      'lis_test_seconds_bucket{kind="a",le="+Inf"} 4',
      'lis_test_seconds_sum{kind="a"} 12',
      'lis_test_seconds_count{kind="a"} 4',
    ])
  })
})
