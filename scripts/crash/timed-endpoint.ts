/** An HTTPS endpoint whose path says when it answers: `/head/9800/…` after so many ms; `/flood/1000/…` then a body without an end. */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { monotonicMs } from '../../src/clock.ts'
import type { DevTls } from '../dev-tls.ts'

const CHUNK = 'x'.repeat(200)
const CHUNK_MS = 100

export interface TimedEndpoint {
  url: string
  /** Of each flood: from its head to the end of its connection, in ms. */
  closedAfterMs: number[]
  /** When requests came, by path. */
  cameAtMs: Map<string, number[]>
  close(): void
}

export async function startTimedEndpoint(tls: DevTls): Promise<TimedEndpoint> {
  const server = createServer({ cert: readFileSync(tls.certificateFile), key: readFileSync(tls.keyFile) })
  const closedAfterMs: number[] = []
  const cameAtMs: TimedEndpoint['cameAtMs'] = new Map()
  server.on('request', (request, response) => {
    request.resume()
    const path = request.url!
    const [, how, ms] = path.split('/')
    cameAtMs.set(path, [...(cameAtMs.get(path) ?? []), monotonicMs()])
    setTimeout(() => {
      if (response.destroyed) return
      response.writeHead(200, how === 'flood' ? {} : { 'content-length': '0', connection: 'close' })
      if (how !== 'flood') return void response.end()
      const headAtMs = monotonicMs()
      const timer = setInterval(() => response.write(CHUNK), CHUNK_MS)
      response.on('close', () => {
        clearInterval(timer)
        closedAfterMs.push(monotonicMs() - headAtMs)
      })
      response.write(CHUNK)
    }, Number(ms))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
    closedAfterMs,
    cameAtMs,
    close: () => void (server.close(), server.closeAllConnections()),
  }
}
