/**
 * A real HTTPS receiver, as an integrator would run one: for the demo, for `make receiver` and for the tests.
 */
import { readFileSync } from 'node:fs'
import { once } from 'node:events'
import type { IncomingHttpHeaders } from 'node:http'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { monotonicMs } from '../src/clock.ts'
import type { DevTls } from './dev-tls.ts'

export interface ReceivedRequest {
  path: string
  headers: IncomingHttpHeaders
  /** The exact bytes. */
  body: Buffer
  /** Monotonic time of the request's head, in milliseconds. */
  atMs: number
}

export interface Answer {
  status: number
  body?: string
  headers?: Record<string, string>
}

export interface HttpsReceiver {
  /** `https://127.0.0.1:<port>` */
  url: string
  port: number
  requests: ReceivedRequest[]
  /** Resolves when that many requests have arrived in all. */
  arrived(count: number, timeoutMs?: number): Promise<ReceivedRequest[]>
  close(): Promise<void>
}

/**
 * @param answer what to answer a request; a promise makes the sender wait. Default: 204
 * @param port 0: any free one
 */
export async function startHttpsReceiver(
  tls: DevTls,
  answer: (request: ReceivedRequest) => Answer | Promise<Answer> = () => ({ status: 204 }),
  port = 0,
): Promise<HttpsReceiver> {
  const requests: ReceivedRequest[] = []
  const waiting = new Set<() => void>()
  const server = createServer({ cert: readFileSync(tls.certificateFile), key: readFileSync(tls.keyFile) })
  server.on('request', (request, response) => {
    const atMs = monotonicMs()
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', async () => {
      const received = { path: request.url ?? '/', headers: request.headers, body: Buffer.concat(chunks), atMs }
      requests.push(received)
      for (const check of waiting) check()
      const { status, body, headers } = await answer(received)
      if (response.destroyed) return
      response.writeHead(status, headers)
      response.end(body)
    })
  })
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  const bound = (server.address() as AddressInfo).port
  return {
    url: `https://127.0.0.1:${bound}`,
    port: bound,
    requests,
    arrived: (count, timeoutMs = 15_000) =>
      new Promise((resolve, reject) => {
        const timer = setTimeout(() => {
          waiting.delete(check)
          reject(new Error(`${requests.length} of ${count} requests arrived within ${timeoutMs} ms`))
        }, timeoutMs)
        const check = () => {
          if (requests.length < count) return
          clearTimeout(timer)
          waiting.delete(check)
          resolve(requests)
        }
        waiting.add(check)
        check()
      }),
    close: async () => {
      server.close()
      server.closeAllConnections()
    },
  }
}
