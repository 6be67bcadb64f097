import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { NO_CONTENT, RawEndpoints } from '../support/raw-endpoints.ts'

/** Believed, it would be a failure. */
const UNASKED = 'HTTP/1.1 500 Stray\r\ncontent-length: 0\r\n\r\n'

const endpoints = new RawEndpoints()
beforeAll(() => endpoints.open())
afterEach(() => endpoints.closeServers())
afterAll(() => endpoints.close())

describe('bytes that nobody asked for are never taken for an answer', () => {
  test('in the same piece as the answer before', async () => {
    const started = await endpoints.server((socket) => socket.write(NO_CONTENT + UNASKED))
    for (let n = 1; n <= 5; n++) {
      expect(await endpoints.post(started)).toMatchObject({ ok: true, status: 204 })
      expect(started.connections).toBe(n)
    }
  })

  test.each([
    ['the next request is', 1],
    ['next requests of several connections, read one after the other in one turn, are', 8],
  ])('right behind it, in a TLS record of its own, while %s about to go out', async (_, atOnce) => {
    const started = await endpoints.server((socket) => {
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
      for (let n = 0; n < 10; n++) expect(await endpoints.post({ port })).toMatchObject({ ok: true, status: 204 })
    }
    await Promise.all(Array.from({ length: atOnce }, next))
    proxy.close()
  })

  test('while the connection is idle', async () => {
    const started = await endpoints.server((socket) => socket.write(NO_CONTENT))
    expect((await endpoints.post(started)).ok).toBe(true)
    for (const socket of started.sockets) socket.write(UNASKED)
    await expect.poll(() => started.sockets.size).toBe(0)
    expect((await endpoints.post(started)).ok).toBe(true)
    expect(started.connections).toBe(2)
  })

  test('behind an answer whose body was read only in part', async () => {
    const body = 'x'.repeat(20_000)
    const started = await endpoints.server((socket) =>
      socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${body.length}\r\n\r\n${body}${UNASKED}`),
    )
    for (let n = 1; n <= 3; n++) {
      expect(await endpoints.post(started)).toMatchObject({ ok: true, answer: Buffer.alloc(1024, 'x') })
      expect(started.connections).toBe(n)
    }
  })
})

describe('a kept-alive connection that ends before a byte of an answer', () => {
  test.each([
    ['closed', (socket: Socket) => socket.end()],
    ['reset', (socket: Socket) => socket.destroy()],
  ])('is replaced once by a new one: %s', async (_, end) => {
    const started = await endpoints.server((socket, n, connection) =>
      n === 2 && connection % 2 === 1 ? end(socket) : socket.write(NO_CONTENT),
    )
    for (let n = 0; n < 60; n++) expect(await endpoints.post(started)).toMatchObject({ ok: true, status: 204 })
  })

  test('closed by the server just as the next request goes out is no failure', async () => {
    const started = await endpoints.server((socket) => {
      socket.write(NO_CONTENT)
      setImmediate(() => socket.end())
    })
    for (let n = 0; n < 100; n++) {
      expect(await endpoints.post(started)).toMatchObject({ ok: true, status: 204 })
      if (n % 3 > 0) await new Promise((resolve) => (n % 3 === 1 ? setImmediate(resolve) : setTimeout(resolve, 1)))
    }
  })

  test('is not replaced a second time, nor when a byte had come', async () => {
    const never = await endpoints.server((socket, n, connection) =>
      connection === 1 && n === 1 ? socket.write(NO_CONTENT) : socket.destroy(),
    )
    expect((await endpoints.post(never)).ok).toBe(true)
    expect(await endpoints.post(never)).toMatchObject({ ok: false, class: 'reset' })
    expect(never.connections).toBe(2)
    const begun = await endpoints.server((socket, n) => (n === 1 ? socket.write(NO_CONTENT) : socket.end('HTTP/1.1 2')))
    expect((await endpoints.post(begun)).ok).toBe(true)
    expect(await endpoints.post(begun)).toMatchObject({ ok: false, class: 'reset' })
    expect(begun.connections).toBe(1)
  })

  test('is not replaced when it ends more than a second after the request: the endpoint has had that', async () => {
    const late = await endpoints.server((socket, n) => {
      if (n === 1) socket.write(NO_CONTENT)
      else setTimeout(() => socket.destroy(), 1300)
    })
    expect((await endpoints.post(late)).ok).toBe(true)
    expect(await endpoints.post(late)).toMatchObject({ ok: false, class: 'reset' })
    expect(late.connections).toBe(1)
  })
})
