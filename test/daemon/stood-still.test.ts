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
    process.send('received')
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
