import { once } from 'node:events'
import { createServer, type RequestListener, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Worker } from 'node:worker_threads'
import { afterEach, expect, test } from 'vitest'
import { GatewayFault, postToGateway } from '../src/gateway-request.ts'

const DEADLINE_MS = 300
const servers: Server[] = []

afterEach(() => {
  for (const server of servers.splice(0)) server.closeAllConnections()
})

async function post(answers: RequestListener): Promise<GatewayFault | undefined> {
  const server = createServer(answers)
  servers.push(server)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  server.unref()
  const url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`)
  return postToGateway({ url, idempotencyKey: 'evt_1', content: {}, deadlineMs: DEADLINE_MS }).then(
    () => undefined,
    (fault) => fault,
  )
}

test('a gateway that has said yes and drips its body has taken the request, and is left at the deadline', async () => {
  let closed = () => {}
  const left = new Promise<void>((resolve) => (closed = resolve))
  const fault = await post((req, res) => {
    res.writeHead(200)
    const drip = setInterval(() => res.write('x'), 20)
    req.socket.on('close', () => {
      clearInterval(drip)
      closed()
    })
  })
  expect(fault).toBeUndefined()
  await left
})

test('a gateway that cuts its answer short after a yes has taken the request', async () => {
  const fault = await post((req, res) => {
    res.writeHead(200, { 'content-length': 100 })
    res.write('x', () => req.socket.destroy())
  })
  expect(fault).toBeUndefined()
})

test.each([
  ['503', 503, true],
  ['429', 429, true],
  ['500', 500, false],
  ['400', 400, false],
  ['a redirect', 307, false],
])(
  'a gateway that answers %s has not taken it; whether it would take others is told apart',
  async (_, status, isOutage) => {
    const fault = await post((_req, res) => res.writeHead(status).end())
    expect(fault).toBeInstanceOf(GatewayFault)
    expect(fault).toMatchObject({ code: `HTTP_${status}`, isOutage })
  },
)

test('a gateway that can’t be reached is an outage', async () => {
  const fault = await post((req) => req.socket.destroy())
  expect(fault).toMatchObject({ code: 'ECONNRESET', isOutage: true })
})

const ANSWERING_THREAD = `
  const { parentPort } = require('node:worker_threads')
  const server = require('node:http').createServer((req, res) => {
    parentPort.postMessage('asked')
    setTimeout(() => res.end(), 100)
  })
  server.listen(0, '127.0.0.1', () => parentPort.postMessage(server.address().port))`

test('an answer that came in time is heard, also by a process that stood still until after the deadline', async () => {
  // In a thread of its own, which goes on meanwhile.
  const gateway = new Worker(ANSWERING_THREAD, { eval: true })
  try {
    const [port] = await once(gateway, 'message')
    const url = new URL(`http://127.0.0.1:${port}/`)
    const taken = postToGateway({ url, idempotencyKey: 'evt_1', content: {}, deadlineMs: DEADLINE_MS })
    await once(gateway, 'message')
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2 * DEADLINE_MS)
    await expect(taken).resolves.toBeUndefined()
  } finally {
    await gateway.terminate()
  }
})

test('what is still being connected when the process stops is not sent once its time is over', async () => {
  let received = 0
  for (let n = 0; n < 6; n++) {
    const server = createServer((_req, res) => {
      received += 1
      res.end()
    })
    servers.push(server)
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`)
    const fault = postToGateway({ url, idempotencyKey: 'evt_1', content: {}, deadlineMs: DEADLINE_MS }).then(
      () => undefined,
      (error: GatewayFault) => error.code,
    )
    // The server is in this process: it takes nothing until later either.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, DEADLINE_MS + 50)
    expect(await fault).toBe('ETIMEDOUT')
  }
  expect(received).toBe(0)
})
