/**
 * A process that stood still, with its machine or alone, beyond the deadline of what it had under way: an answer that came meanwhile
 * counts, else an endpoint that has taken an event would fail, and get it again.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createWebhookClient, type WebhookClient } from '../../daemon/webhook-client.ts'
import { createAddressPolicy } from '../../src/webhooks/endpoint-address.ts'
import { createTestTls } from '../support/tls.ts'

const DEADLINE_MS = 400
/** Beyond the deadline, and by far more than timers are ever late. */
const STILL_MS = DEADLINE_MS + 1500

/** A process of its own: answers after as many milliseconds as the path says, or never. */
const ENDPOINT = `
  const { readFileSync } = require('node:fs')
  const [cert, key] = process.argv.slice(1).map((file) => readFileSync(file))
  const server = require('node:https').createServer({ cert, key }, (request, response) => {
    process.send(Number(process.hrtime.bigint() / 1000000n))
    const afterMs = Number(request.url.slice(1))
    if (afterMs >= 0) setTimeout(() => response.writeHead(204).end(), afterMs)
  })
  server.listen(0, '127.0.0.1', () => process.send(server.address().port))
`

let tls: Awaited<ReturnType<typeof createTestTls>>
let client: WebhookClient
let endpoint: ReturnType<typeof spawn>
let port: number

beforeAll(async () => {
  tls = await createTestTls()
  endpoint = spawn(process.execPath, ['-e', ENDPOINT, tls.certificateFile, tls.keyFile], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  })
  ;[port] = await once(endpoint, 'message')
  client = createWebhookClient(
    { policy: createAddressPolicy({ allow: ['127.0.0.0/8'] }), caFiles: [tls.caFile] },
    DEADLINE_MS,
  )
})
afterAll(async () => {
  await client?.close()
  endpoint?.kill()
  tls.remove()
})

async function post(afterMs: number, standsStill: boolean) {
  const received = once(endpoint, 'message')
  const outcome = client.post({
    accountId: 'any',
    endpoint: `https://127.0.0.1:${port}/${afterMs}`,
    headers: {},
    body: Buffer.from('{}'),
  })
  await received
  if (standsStill) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, STILL_MS)
  return outcome
}

test('an answer that came while the process stood still counts', async () => {
  const { durationMs, ...outcome } = await post(50, true)
  expect(outcome).toMatchObject({ ok: true, class: 'ok', status: 204, error: null })
  // As long as it took to be known.
  expect(durationMs).toBeGreaterThan(STILL_MS)
})

test('where none came the deadline is over at once', async () => {
  const { durationMs, ...outcome } = await post(-1, true)
  expect(outcome).toMatchObject({ ok: false, class: 'timeout', error: 'no answer within 0.4 s' })
  expect(durationMs).toBeLessThan(STILL_MS + 1000)
})

test('one that comes late, while the process looks on, does not count', async () => {
  expect(await post(DEADLINE_MS + 50, false)).toMatchObject({ ok: false, class: 'timeout' })
  expect(await post(50, false)).toMatchObject({ ok: true, class: 'ok' })
})

test('what is still being connected when the process stops is not sent once its time is over', async () => {
  /** When, by the machine's monotonic clock, which all processes have. */
  const receivedAtMs: number[] = []
  const note = (atMs: unknown) => receivedAtMs.push(atMs as number)
  endpoint.on('message', note)
  // At every step of the way: a look each at what has come.
  for (let steps = 0; steps < 16; steps++) {
    const own = createWebhookClient(
      { policy: createAddressPolicy({ allow: ['127.0.0.0/8'] }), caFiles: [tls.caFile] },
      DEADLINE_MS,
    )
    const url = `https://127.0.0.1:${port}/-1`
    const outcome = own.post({ accountId: 'any', endpoint: url, headers: {}, body: Buffer.from('{}') })
    for (let n = 0; n < steps; n++) await new Promise((resolve) => setImmediate(resolve))
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, DEADLINE_MS + 200)
    const wokeAtMs = Number(process.hrtime.bigint() / 1_000_000n)
    expect(await outcome).toMatchObject({ ok: false, class: 'timeout' })
    await own.close()
    // A message of the endpoint's own process is on its way.
    await new Promise((resolve) => setTimeout(resolve, 100))
    const late = receivedAtMs.filter((atMs) => atMs > wokeAtMs)
    expect([steps, late]).toEqual([steps, []])
  }
  endpoint.off('message', note)
}, 60_000)
