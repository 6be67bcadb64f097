/** What a daemon keeps for long does not keep more than itself: see `own-bytes.ts`. */
import { once } from 'node:events'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { Worker } from 'node:worker_threads'
import { afterEach, expect, test } from 'vitest'
import { requestTarget } from '../../daemon/http-request.ts'
import { createWebhookClient } from '../../daemon/webhook-client.ts'
import { Representation } from '../../src/representation.ts'
import { createAddressPolicy } from '../../src/webhooks/endpoint-address.ts'
import { createTestTls } from '../support/tls.ts'

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void

/** In a thread of its own, whose memory is counted apart. */
const SERVER = `
  const { parentPort, workerData } = require('node:worker_threads')
  const { readFileSync } = require('node:fs')
  const { cert, key } = workerData
  const server = require('node:https').createServer({ cert: readFileSync(cert), key: readFileSync(key) }, (req, res) => {
    req.resume()
    res.end()
  })
  server.listen(0, '127.0.0.1', () => parentPort.postMessage(server.address().port))`

/** More than one of the pieces that small Buffers are cut from. */
const MUCH_BYTES = 200_000
const cleanUp: (() => unknown)[] = []
afterEach(async () => {
  for (const end of cleanUp.splice(0).reverse()) await end()
})

/** Bytes of Buffers that are held: what is garbage is given back a moment later, by another thread. */
async function heldBytes(): Promise<number> {
  let least = Infinity
  for (let n = 0; n < 10; n++) {
    collect()
    await new Promise((resolve) => setTimeout(resolve, 10))
    least = Math.min(least, process.memoryUsage().arrayBuffers)
  }
  return least
}

/** @returns bytes of Buffers for each, when other work goes on in between */
async function bytesOfEach(count: number, keep: (n: number) => unknown): Promise<number> {
  const kept: unknown[] = []
  const before = await heldBytes()
  for (let n = 0; n < count; n++) {
    for (let bytes = 0; bytes < MUCH_BYTES; bytes += 1000) Buffer.allocUnsafe(1000)
    kept.push(await keep(n))
  }
  const each = ((await heldBytes()) - before) / count
  expect(kept).toHaveLength(count)
  return each
}

test('what all requests to an endpoint have in common takes as much as it is long', async () => {
  const each = await bytesOfEach(100, (n) => requestTarget('account', new URL(`https://host-${n}.example/hook`), {}))
  expect(each).toBeLessThan(4000)
})

test('a short list that is kept takes as much as it is long, and so does a compressed form', async () => {
  const lists = Array.from({ length: 100 }, (_, n) =>
    Array.from({ length: 100 }, (_, m) => ({ name: `test ${n} ${m}` })),
  )
  const each = await bytesOfEach(100, async (n) => {
    const list = Representation.of(lists[n])
    await list.encoded('gzip')
    return list
  })
  expect(each).toBeLessThan(8000)
})

test('a connection that is kept alive takes little', async () => {
  const tls = await createTestTls()
  cleanUp.push(() => tls.remove())
  const server = new Worker(SERVER, { eval: true, workerData: { cert: tls.certificateFile, key: tls.keyFile } })
  cleanUp.push(() => server.terminate())
  const [port] = await once(server, 'message')
  const client = createWebhookClient({ policy: createAddressPolicy({ allow: ['127.0.0.0/8'] }), caFiles: [tls.caFile] })
  cleanUp.push(() => client.close())
  const request = { endpoint: `https://127.0.0.1:${port}/`, headers: {}, body: Buffer.from('{}') }
  expect(await client.post({ ...request, accountId: 'first' })).toMatchObject({ ok: true })
  // Each account has connections of its own.
  const each = await bytesOfEach(60, (n) => client.post({ ...request, accountId: `account ${n}` }))
  expect(each).toBeLessThan(16_000)
})
