import type { TLSSocket } from 'node:tls'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createEndpointConnector } from '../../daemon/endpoint-connector.ts'
import { EndpointPools } from '../../daemon/endpoint-pools.ts'
import { requestTarget } from '../../daemon/http-request.ts'
import { TurnEnd } from '../../daemon/turn-end.ts'
import { monotonicMs } from '../../src/clock.ts'
import { createAddressPolicy } from '../../src/webhooks/endpoint-address.ts'
import { RawEndpoints } from '../support/raw-endpoints.ts'

const endpoints = new RawEndpoints()

beforeAll(() => endpoints.open())
afterAll(async () => {
  await endpoints.closeServers()
  await endpoints.close()
})

test('connections that are given up together are closed a few at a time, with time between', async () => {
  const connections = 100
  // Less than the margin before a server's own end: for a second.
  const server = await endpoints.server((socket) =>
    socket.write('HTTP/1.1 204 No Content\r\nkeep-alive: timeout=3\r\n\r\n'),
  )
  const sockets: TLSSocket[] = []
  const connect = createEndpointConnector({
    policy: createAddressPolicy({ allow: ['127.0.0.0/8'] }),
    caFiles: [endpoints.tls.caFile],
  })
  const pools = new EndpointPools((...args) => {
    const socket = connect(...args)
    sockets.push(socket)
    return socket
  }, new TurnEnd())
  const target = requestTarget('any', new URL(`https://127.0.0.1:${server.port}/`), {})
  const request = Buffer.from('POST / HTTP/1.1\r\nhost: any\r\ncontent-length: 0\r\n\r\n')
  const send = () =>
    new Promise<void>((resolve, reject) =>
      pools.send(target, { bytes: () => request, answered: () => {}, ended: resolve, failed: reject }, monotonicMs()),
    )
  const openOnes = () => sockets.filter(({ destroyed }) => !destroyed).length
  try {
    await Promise.all(Array.from({ length: connections }, send))
    expect(openOnes()).toBe(connections)
    const closedInTurns: number[] = []
    const closedAtMs: number[] = []
    const untilMs = monotonicMs() + 5000
    for (let before = connections; before > 0 && monotonicMs() < untilMs;) {
      await new Promise((resolve) => setImmediate(resolve))
      const now = openOnes()
      if (now < before) {
        closedInTurns.push(before - now)
        closedAtMs.push(monotonicMs())
      }
      before = now
    }
    expect(openOnes()).toBe(0)
    // Those that the sweep closes itself, and those of the same turn's end.
    expect(Math.max(...closedInTurns)).toBeLessThanOrEqual(16)
    // 13 times 8, 5 ms apart; the first may be seen late.
    expect(closedAtMs.at(-1)! - closedAtMs[0]!).toBeGreaterThan(40)
    // All are closed by this side: nothing is left on the other.
    while (server.sockets.size > 0 && monotonicMs() < untilMs) await new Promise((resolve) => setTimeout(resolve, 10))
    expect(server.sockets.size).toBe(0)
  } finally {
    pools.close()
  }
})
