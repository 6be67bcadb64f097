/** The lab's own message gateway: it takes every message, and counts how often it was asked to send each. */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface CountingGateway {
  url: string
  /** By Idempotency-Key. */
  asked: Map<string, number>
  close(): void
}

export async function startCountingGateway(): Promise<CountingGateway> {
  const asked: CountingGateway['asked'] = new Map()
  const server = createServer((request, response) => {
    request.resume().on('end', () => {
      const key = String(request.headers['idempotency-key'])
      asked.set(key, (asked.get(key) ?? 0) + 1)
      response.writeHead(200, { 'content-length': '0' }).end()
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/messages`,
    asked,
    close: () => void (server.close(), server.closeAllConnections()),
  }
}
