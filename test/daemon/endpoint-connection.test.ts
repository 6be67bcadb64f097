import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import { performance } from 'node:perf_hooks'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import { createWebhookClient, type WebhookClient } from '../../daemon/webhook-client.ts'
import { createAddressPolicy } from '../../src/webhooks/endpoint-address.ts'
import { startRawServer, type RawServer } from '../support/raw-server.ts'
import { createTestTls } from '../support/tls.ts'

const DEADLINE_MS = 5000
const NO_CONTENT = 'HTTP/1.1 204 No Content\r\n\r\n'
/** Believed, it would be a failure. */
const UNASKED = 'HTTP/1.1 500 Stray\r\ncontent-length: 0\r\n\r\n'

let tls: Awaited<ReturnType<typeof createTestTls>>
let client: WebhookClient
const open: { close(): Promise<void> }[] = []
const warnings: Error[] = []
const warned = (warning: Error) => void warnings.push(warning)

beforeAll(async () => {
  tls = await createTestTls()
  client = newClient()
  process.on('warning', warned)
})
afterEach(async () => {
  for (const server of open.splice(0)) await server.close()
})
afterAll(async () => {
  await client.close()
  process.off('warning', warned)
  tls.remove()
})

function newClient(): WebhookClient {
  return createWebhookClient(
    { policy: createAddressPolicy(['127.0.0.0/8', '::1/128']), caFiles: [tls.caFile] },
    DEADLINE_MS,
  )
}

/** @param onRequest with the request's number on its connection and the connection's number, both from 1 */
async function server(
  onRequest: (socket: Socket, n: number, connection: number) => void,
  onConnection: (socket: Socket) => void = () => {},
): Promise<RawServer> {
  const numbers = new Map<Socket, number>()
  const started = await startRawServer(
    tls,
    (socket, n) => onRequest(socket, n, numbers.get(socket)!),
    (socket) => {
      numbers.set(socket, numbers.size + 1)
      onConnection(socket)
    },
  )
  open.push(started)
  return started
}

const post = (
  { port }: { port: number },
  using = client,
  headers: Record<string, string> = { 'webhook-id': 'evt_1' },
) => using.post({ endpoint: `https://127.0.0.1:${port}/hooks?a=%20b`, headers, body: Buffer.from('{"a":1}') })

/** Lets the event loop go round until nothing is on its way between the two sides any more. */
async function settled(): Promise<void> {
  for (let n = 0; n < 20; n++) await new Promise((resolve) => setImmediate(resolve))
  await new Promise((resolve) => setTimeout(resolve, 20))
}

describe('a request', () => {
  test('is these bytes, in one piece', async () => {
    const pieces: string[] = []
    const started = await server(
      (socket) => socket.write(NO_CONTENT),
      (socket) => socket.on('data', (data) => pieces.push(data.toString('latin1'))),
    )
    await post(started, client, { 'content-type': 'application/json', 'webhook-id': 'evt_1' })
    expect(pieces).toEqual([
      `POST /hooks?a=%20b HTTP/1.1\r\nhost: 127.0.0.1:${started.port}\r\nconnection: keep-alive\r\n` +
        'content-type: application/json\r\nwebhook-id: evt_1\r\ncontent-length: 7\r\n\r\n{"a":1}',
    ])
  })

  test('arrives as it was sent, whatever the one before it on its connection was', async () => {
    const bodies: string[] = []
    let received = ''
    const started = await server(
      () => {},
      (socket) =>
        socket.on('data', (data) => {
          received += data.toString('latin1')
          const [head, body] = received.split('\r\n\r\n')
          if (body?.length !== Number(/content-length: (\d+)/.exec(head!)?.[1])) return
          bodies.push(body)
          received = ''
          socket.write(NO_CONTENT)
        }),
    )
    const sent = [10, 3000, 3000, 20, 5000, 100_000, 3000, 10].map((length, n) => String(n).repeat(length))
    for (const body of sent) {
      await client.post({ endpoint: `https://127.0.0.1:${started.port}/`, headers: {}, body: Buffer.from(body) })
    }
    expect(bodies).toEqual(sent)
    expect(started.connections).toBe(1)
  })

  test('that fails at once is told of after it was sent, so that thousands of them can follow each other', async () => {
    const guarded = createWebhookClient({ policy: createAddressPolicy([]), caFiles: [tls.caFile] }, DEADLINE_MS)
    let failed = 0
    await new Promise<void>((resolve) => {
      const send = () => {
        const failedBefore = failed
        guarded.send({ endpoint: 'https://127.0.0.1:1/', headers: {}, body: Buffer.from('{}') }, ({ ok }) => {
          expect(ok).toBe(false)
          if (++failed === 20_000) resolve()
          else send()
        })
        expect(failed).toBe(failedBefore)
      }
      send()
    })
    await guarded.close()
  })

  test.each([
    ['a value with a line break', { 'webhook-id': 'evt_1\r\nx: y' }],
    ['a value with a bare line feed', { 'webhook-id': 'evt_1\nx: y' }],
    ['a value beyond a byte', { 'webhook-id': 'evt_\u010d' }],
    ['a name with a line break', { 'x\r\ny': 'z' }],
    ['a name with a colon', { 'x:': 'y' }],
    ['an empty name', { '': 'y' }],
  ])('with %s is not sent', async (_, headers) => {
    const started = await server((socket) => socket.write(NO_CONTENT))
    expect(await post(started, client, headers as Record<string, string>)).toMatchObject({
      class: 'protocol',
      error: 'the answer was not valid HTTP/1.1 (UND_ERR_INVALID_ARG)',
    })
    expect(started.connections).toBe(0)
  })

  test('to something that is not https is not sent', async () => {
    const outcome = await client.post({ endpoint: 'http://127.0.0.1:1/', headers: {}, body: Buffer.from('{}') })
    expect(outcome).toMatchObject({ class: 'protocol', error: 'the endpoint is not a usable URL' })
  })
})

describe('connections', () => {
  test('one carries any number of requests that come one after the other, and collects nothing', async () => {
    const started = await server((socket) => socket.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok'))
    for (let n = 0; n < 200; n++) expect(await post(started)).toMatchObject({ ok: true, answer: Buffer.from('ok') })
    expect(started.connections).toBe(1)
    expect(warnings).toEqual([])
  })

  test('as many are made as requests are under way at once, and all of them are used again', async () => {
    const started = await server((socket) => void setTimeout(() => socket.write(NO_CONTENT), 20))
    for (let round = 0; round < 3; round++) {
      const outcomes = await Promise.all(Array.from({ length: 8 }, () => post(started)))
      expect(outcomes.every(({ ok }) => ok)).toBe(true)
    }
    expect(started.connections).toBe(8)
  })

  test.each([
    ['connection: close', 'HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n'],
    ['HTTP/1.0', 'HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n'],
    ['a body where there is none', 'HTTP/1.1 204 No Content\r\ncontent-length: 2\r\n\r\nok'],
    ['less time than a request may take', 'HTTP/1.1 200 OK\r\nkeep-alive: timeout=2\r\ncontent-length: 0\r\n\r\n'],
    ['no time at all', 'HTTP/1.1 200 OK\r\nkeep-alive: timeout=0\r\ncontent-length: 0\r\n\r\n'],
  ])('one is not used again after %s', async (_, answer) => {
    const started = await server((socket) => socket.write(answer))
    for (let n = 1; n <= 3; n++) {
      expect((await post(started)).ok).toBe(true)
      expect(started.connections).toBe(n)
    }
    await expect.poll(() => started.sockets.size).toBe(0)
  })

  test('one that ends with its answer brings it', async () => {
    const started = await server((socket) => socket.end('HTTP/1.1 200 OK\r\n\r\nhello'))
    expect(await post(started)).toMatchObject({ ok: true, answer: Buffer.from('hello') })
    expect(await post(started)).toMatchObject({ ok: true, answer: Buffer.from('hello') })
  })
})

describe('bytes that nobody asked for are never taken for an answer', () => {
  test('in the same piece as the answer before', async () => {
    const started = await server((socket) => socket.write(NO_CONTENT + UNASKED))
    for (let n = 1; n <= 5; n++) {
      expect(await post(started)).toMatchObject({ ok: true, status: 204 })
      expect(started.connections).toBe(n)
    }
  })

  test.each([
    ['the next request is', 1],
    ['next requests of several connections, read one after the other in one turn, are', 8],
  ])('right behind it, in a TLS record of its own, while %s about to go out', async (_, atOnce) => {
    const started = await server((socket) => {
      socket.setNoDelay(true)
      socket.write(NO_CONTENT)
      socket.write(UNASKED)
    })
    // Both records arrive at once, on all connections: between them there is time to ask for more.
    const held = new Map<Socket, Buffer[]>()
    const release = () => {
      for (const [near, pieces] of held) near.write(Buffer.concat(pieces))
      held.clear()
    }
    const proxy = createServer((near) => {
      const far = connect(started.port, '127.0.0.1')
      far.on('data', (data) => {
        if (held.size === 0) setTimeout(release, 20)
        held.set(near, [...(held.get(near) ?? []), data])
      })
      for (const [from, to] of [[near, far], [far, near]] as const) from.on('error', () => {}).on('close', () => to.destroy()) // prettier-ignore
      near.pipe(far)
    })
    proxy.listen(0, '127.0.0.1')
    await once(proxy, 'listening')
    const port = (proxy.address() as AddressInfo).port
    const next = async () => {
      for (let n = 0; n < 10; n++) expect(await post({ port })).toMatchObject({ ok: true, status: 204 })
    }
    await Promise.all(Array.from({ length: atOnce }, next))
    proxy.close()
  })

  test('while the connection is idle', async () => {
    const started = await server((socket) => socket.write(NO_CONTENT))
    expect((await post(started)).ok).toBe(true)
    for (const socket of started.sockets) socket.write(UNASKED)
    await expect.poll(() => started.sockets.size).toBe(0)
    expect((await post(started)).ok).toBe(true)
    expect(started.connections).toBe(2)
  })

  test('behind an answer whose body was read only in part', async () => {
    const body = 'x'.repeat(20_000)
    const started = await server((socket) =>
      socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${body.length}\r\n\r\n${body}${UNASKED}`),
    )
    for (let n = 1; n <= 3; n++) {
      expect(await post(started)).toMatchObject({ ok: true, answer: Buffer.alloc(1024, 'x') })
      expect(started.connections).toBe(n)
    }
  })
})

describe('a kept-alive connection that ends before a byte of an answer', () => {
  test.each([
    ['closed', (socket: Socket) => socket.end()],
    ['reset', (socket: Socket) => socket.destroy()],
  ])('is replaced once by a new one: %s', async (_, end) => {
    const started = await server((socket, n, connection) =>
      n === 2 && connection % 2 === 1 ? end(socket) : socket.write(NO_CONTENT),
    )
    for (let n = 0; n < 60; n++) expect(await post(started)).toMatchObject({ ok: true, status: 204 })
  })

  test('closed by the server just as the next request goes out is no failure', async () => {
    const started = await server((socket) => {
      socket.write(NO_CONTENT)
      setImmediate(() => socket.end())
    })
    for (let n = 0; n < 100; n++) {
      expect(await post(started)).toMatchObject({ ok: true, status: 204 })
      if (n % 3 > 0) await new Promise((resolve) => (n % 3 === 1 ? setImmediate(resolve) : setTimeout(resolve, 1)))
    }
  })

  test('is not replaced a second time, nor when a byte had come', async () => {
    const never = await server((socket, n, connection) =>
      connection === 1 && n === 1 ? socket.write(NO_CONTENT) : socket.destroy(),
    )
    expect((await post(never)).ok).toBe(true)
    expect(await post(never)).toMatchObject({ ok: false, class: 'reset' })
    expect(never.connections).toBe(2)
    const begun = await server((socket, n) => (n === 1 ? socket.write(NO_CONTENT) : socket.end('HTTP/1.1 2')))
    expect((await post(begun)).ok).toBe(true)
    expect(await post(begun)).toMatchObject({ ok: false, class: 'reset' })
    expect(begun.connections).toBe(1)
  })

  test('is not replaced when it ends more than a second after the request: the endpoint has had that', async () => {
    const late = await server((socket, n) => {
      if (n === 1) socket.write(NO_CONTENT)
      else setTimeout(() => socket.destroy(), 1300)
    })
    expect((await post(late)).ok).toBe(true)
    expect(await post(late)).toMatchObject({ ok: false, class: 'reset' })
    expect(late.connections).toBe(1)
  })
})

describe('what happens to a connection after its attempt', () => {
  test('concerns nobody: resets, floods and late answers', async () => {
    const short = createWebhookClient({ policy: createAddressPolicy(['127.0.0.0/8']), caFiles: [tls.caFile] }, 300)
    const started = await server((socket, _n, connection) => {
      if (connection % 3 === 0) setTimeout(() => socket.write(NO_CONTENT), 350)
      if (connection % 3 === 1) setTimeout(() => socket.resetAndDestroy(), 350)
      if (connection % 3 === 2) socket.write(`HTTP/1.1 200 OK\r\n\r\n${'x'.repeat(200_000)}`)
    })
    const outcomes = await Promise.all(Array.from({ length: 9 }, () => post(started, short)))
    expect(outcomes.filter(({ ok }) => ok)).toHaveLength(3)
    expect(outcomes.filter(({ class: kind }) => kind === 'timeout')).toHaveLength(6)
    await expect.poll(() => started.sockets.size, { timeout: 5000 }).toBe(0)
    await settled()
    await short.close()
  })

  test('a closed client has failed what was under way, and sends nothing any more', async () => {
    const own = newClient()
    const started = await server(() => {})
    const underWay = post(started, own)
    await expect.poll(() => started.connections).toBe(1)
    await own.close()
    expect(await underWay).toMatchObject({ ok: false, class: 'unknown', status: null })
    expect(await post(started, own)).toMatchObject({ ok: false, class: 'unknown', status: null })
    await expect.poll(() => started.sockets.size).toBe(0)
    expect(started.connections).toBe(1)
  })
})

describe('an idle connection', () => {
  let aheadMs = 0
  beforeEach(() => {
    const now = performance.now.bind(performance)
    vi.spyOn(performance, 'now').mockImplementation(() => now() + aheadMs)
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
  })
  afterEach(() => {
    vi.useRealTimers()
    vi.restoreAllMocks()
  })

  test.each([
    ['after 8 s', '', 8000],
    ['two seconds before the time that the server names', 'keep-alive: timeout=5\r\n', 3000],
    ['after 8 s also when the server would keep it longer', 'keep-alive: timeout=60\r\n', 8000],
  ])('is closed %s', async (_, header, idleMs) => {
    const own = newClient()
    const started = await server((socket) => socket.write(`HTTP/1.1 204 No Content\r\n${header}\r\n`))
    expect((await post(started, own)).ok).toBe(true)
    aheadMs += idleMs - 1000
    expect((await post(started, own)).ok).toBe(true)
    expect(started.connections).toBe(1)
    // Not used any more, also before those who look for idle ones have come round.
    aheadMs += idleMs
    expect((await post(started, own)).ok).toBe(true)
    expect(started.connections).toBe(2)
    await expect.poll(() => started.sockets.size).toBe(1)
    aheadMs += idleMs
    vi.advanceTimersByTime(1000)
    await expect.poll(() => started.sockets.size).toBe(0)
    await own.close()
  })
})
