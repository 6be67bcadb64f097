import { performance } from 'node:perf_hooks'
import type { TLSSocket } from 'node:tls'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import { createWebhookClient } from '../../daemon/webhook-client.ts'
import { createAddressPolicy } from '../../src/webhooks/endpoint-address.ts'
import { DEADLINE_MS, NO_CONTENT, RawEndpoints } from '../support/raw-endpoints.ts'

const endpoints = new RawEndpoints()
const warnings: Error[] = []
const warned = (warning: Error) => void warnings.push(warning)

beforeAll(async () => {
  await endpoints.open()
  process.on('warning', warned)
})
afterEach(() => endpoints.closeServers())
afterAll(async () => {
  await endpoints.close()
  process.off('warning', warned)
})

/** Lets the event loop go round until nothing is on its way between the two sides any more. */
async function settled(): Promise<void> {
  for (let n = 0; n < 20; n++) await new Promise((resolve) => setImmediate(resolve))
  await new Promise((resolve) => setTimeout(resolve, 20))
}

describe('a request', () => {
  test('is these bytes, in one piece', async () => {
    const pieces: string[] = []
    const started = await endpoints.server(
      (socket) => socket.write(NO_CONTENT),
      (socket) => socket.on('data', (data) => pieces.push(data.toString('latin1'))),
    )
    await endpoints.post(started, endpoints.client, { 'content-type': 'application/json', 'webhook-id': 'evt_1' })
    expect(pieces).toEqual([
      `POST /hooks?a=%20b HTTP/1.1\r\nhost: 127.0.0.1:${started.port}\r\nconnection: keep-alive\r\n` +
        'content-type: application/json\r\nwebhook-id: evt_1\r\ncontent-length: 7\r\n\r\n{"a":1}',
    ])
  })

  test('to a name with the dot of DNS names the server without it, and the host as it was given', async () => {
    const seen: unknown[] = []
    const started = await endpoints.server(
      (socket) => socket.write(NO_CONTENT),
      (socket) => {
        seen.push((socket as TLSSocket).servername)
        socket.on('data', (data) => seen.push(/host: (\S+)/.exec(data.toString('latin1'))?.[1]))
      },
    )
    const { port } = started
    const request = { accountId: 'any', headers: {}, body: Buffer.from('{}') }
    const outcome = await endpoints.client.post({ ...request, endpoint: `https://localhost.:${port}/` })
    expect(outcome).toMatchObject({ ok: true })
    expect(seen).toEqual(['localhost', `localhost.:${port}`])
  })

  test('arrives as it was sent, whatever the one before it on its connection was', async () => {
    const bodies: string[] = []
    let received = ''
    const started = await endpoints.server(
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
      await endpoints.client.post({
        accountId: 'any',
        endpoint: `https://127.0.0.1:${started.port}/`,
        headers: {},
        body: Buffer.from(body),
      })
    }
    expect(bodies).toEqual(sent)
    expect(started.connections).toBe(1)
  })

  test('that fails at once is told of after it was sent, so that thousands of them can follow each other', async () => {
    const guarded = createWebhookClient({ policy: createAddressPolicy(), caFiles: [endpoints.tls.caFile] }, DEADLINE_MS)
    let failed = 0
    await new Promise<void>((resolve) => {
      const send = () => {
        const failedBefore = failed
        guarded.send(
          { accountId: 'any', endpoint: 'https://127.0.0.1:1/', headers: {}, body: Buffer.from('{}') },
          ({ ok }) => {
            expect(ok).toBe(false)
            if (++failed === 20_000) resolve()
            else send()
          },
        )
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
    const started = await endpoints.server((socket) => socket.write(NO_CONTENT))
    expect(await endpoints.post(started, endpoints.client, headers as Record<string, string>)).toMatchObject({
      class: 'protocol',
      error: 'the answer was not valid HTTP/1.1 (UND_ERR_INVALID_ARG)',
    })
    expect(started.connections).toBe(0)
  })

  test('to something that is not https is not sent', async () => {
    const outcome = await endpoints.client.post({
      accountId: 'any',
      endpoint: 'http://127.0.0.1:1/',
      headers: {},
      body: Buffer.from('{}'),
    })
    expect(outcome).toMatchObject({ class: 'protocol', error: 'the endpoint is not a usable URL' })
  })
})

describe('connections', () => {
  test('one carries any number of requests that come one after the other, and collects nothing', async () => {
    const started = await endpoints.server((socket) => socket.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok'))
    for (let n = 0; n < 200; n++)
      expect(await endpoints.post(started)).toMatchObject({ ok: true, answer: Buffer.from('ok') })
    expect(started.connections).toBe(1)
    expect(warnings).toEqual([])
  })

  test('as many are made as requests are under way at once, and all of them are used again', async () => {
    const started = await endpoints.server((socket) => void setTimeout(() => socket.write(NO_CONTENT), 20))
    for (let round = 0; round < 3; round++) {
      const outcomes = await Promise.all(Array.from({ length: 8 }, () => endpoints.post(started)))
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
    const started = await endpoints.server((socket) => socket.write(answer))
    for (let n = 1; n <= 3; n++) {
      expect((await endpoints.post(started)).ok).toBe(true)
      expect(started.connections).toBe(n)
    }
    await expect.poll(() => started.sockets.size).toBe(0)
  })

  test('one that ends with its answer brings it', async () => {
    const started = await endpoints.server((socket) => socket.end('HTTP/1.1 200 OK\r\n\r\nhello'))
    expect(await endpoints.post(started)).toMatchObject({ ok: true, answer: Buffer.from('hello') })
    expect(await endpoints.post(started)).toMatchObject({ ok: true, answer: Buffer.from('hello') })
  })
})

describe('what happens to a connection after its attempt', () => {
  test('concerns nobody: resets, floods and late answers', async () => {
    const short = createWebhookClient(
      { policy: createAddressPolicy({ allow: ['127.0.0.0/8'] }), caFiles: [endpoints.tls.caFile] },
      300,
    )
    const started = await endpoints.server((socket, _n, connection) => {
      if (connection % 3 === 0) setTimeout(() => socket.write(NO_CONTENT), 350)
      if (connection % 3 === 1) setTimeout(() => socket.resetAndDestroy(), 350)
      if (connection % 3 === 2) socket.write(`HTTP/1.1 200 OK\r\n\r\n${'x'.repeat(200_000)}`)
    })
    const outcomes = await Promise.all(Array.from({ length: 9 }, () => endpoints.post(started, short)))
    expect(outcomes.filter(({ ok }) => ok)).toHaveLength(3)
    expect(outcomes.filter(({ class: kind }) => kind === 'timeout')).toHaveLength(6)
    await expect.poll(() => started.sockets.size, { timeout: 5000 }).toBe(0)
    await settled()
    await short.close()
  })

  test('is nothing to another account: a second answer, late, is for whoever sent the first request', async () => {
    const started = await endpoints.server((socket, n, connection) => {
      if (connection > 1) return void socket.write('HTTP/1.1 500 Fault\r\nContent-Length: 0\r\n\r\n')
      if (n === 1) socket.write(NO_CONTENT)
      // While the next request is under way, which it never gets to answer.
      if (n === 2) setTimeout(() => socket.write(NO_CONTENT), 100)
    })
    const post = (accountId: string) =>
      endpoints.client.post({
        accountId,
        endpoint: `https://127.0.0.1:${started.port}/`,
        headers: {},
        body: Buffer.from('{}'),
      })
    expect(await post('one')).toMatchObject({ ok: true })
    const second = post('one')
    expect(await post('other')).toMatchObject({ ok: false, status: 500 })
    expect(await second).toMatchObject({ ok: true })
    expect(started.connections).toBe(2)
    expect(await post('other')).toMatchObject({ ok: false, status: 500 })
    expect(started.connections).toBe(2)
  })

  test('a closed client has failed what was under way, and sends nothing any more', async () => {
    const own = endpoints.newClient()
    const started = await endpoints.server(() => {})
    const underWay = endpoints.post(started, own)
    await expect.poll(() => started.connections).toBe(1)
    await own.close()
    expect(await underWay).toMatchObject({ ok: false, class: 'unknown', status: null })
    expect(await endpoints.post(started, own)).toMatchObject({ ok: false, class: 'unknown', status: null })
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
    const own = endpoints.newClient()
    const started = await endpoints.server((socket) => socket.write(`HTTP/1.1 204 No Content\r\n${header}\r\n`))
    expect((await endpoints.post(started, own)).ok).toBe(true)
    aheadMs += idleMs - 1000
    expect((await endpoints.post(started, own)).ok).toBe(true)
    expect(started.connections).toBe(1)
    // Not used any more, also before those who look for idle ones have come round.
    aheadMs += idleMs
    expect((await endpoints.post(started, own)).ok).toBe(true)
    expect(started.connections).toBe(2)
    await expect.poll(() => started.sockets.size).toBe(1)
    aheadMs += idleMs
    vi.advanceTimersByTime(1000)
    await expect.poll(() => started.sockets.size).toBe(0)
    await own.close()
  })
})
