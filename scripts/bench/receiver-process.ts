/**
 * The receiver of the benchmarks, a process of its own: counts receipts and notices any that comes twice. The first part of
 * a path says how it behaves: `/ok/…` answers at once, `/hang/…` never, `/slow/…` after 9 s. `/busy/…` answers at once and is
 * counted apart.
 *
 * Told over IPC: `{reset: true}` (with `forget: true` it does not count the first receipt), `{count: true}`, with `delays: true` those as well. Tells: `{port}`, and to each
 * `count` its counts since the last reset.
 */
import { readFileSync } from 'node:fs'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { machineMs } from './machine-clock.ts'

const SLOW_MS = 9000

const [certificateFile, keyFile] = process.argv.slice(2) as [string, string]

let seen = new Set<string>()
let doubled = 0
/** A control: the next receipt is not counted. */
let forgets = false
let firstAtMs = 0
let lastAtMs = 0
let busyReceipts = 0
let lastBusyAtMs = 0
/** From the time in the body (`recordedAtMs`, or the load's own `integratorID`) to the request's head, of healthy paths, in milliseconds. */
let delays: number[] = []

const server = createServer(
  { cert: readFileSync(certificateFile), key: readFileSync(keyFile) },
  (request, response) => {
    const atMs = machineMs()
    const wallMs = performance.timeOrigin + performance.now()
    const path = request.url!
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      if (firstAtMs === 0) firstAtMs = atMs
      lastAtMs = atMs
      if (path.startsWith('/hang/')) return
      if (path.startsWith('/slow/')) return void setTimeout(() => response.writeHead(200).end(), SLOW_MS)
      if (path.startsWith('/busy/')) {
        busyReceipts += 1
        lastBusyAtMs = atMs
        return void response.writeHead(204).end()
      }
      const key = `${path} ${request.headers['webhook-id']}`
      if (forgets) return void (response.writeHead(204).end(), (forgets = false))
      if (seen.has(key)) doubled += 1
      seen.add(key)
      const recordedAtMs = /"recordedAtMs":([\d.]+)/.exec(chunks[0]?.toString('latin1') ?? '')?.[1]
      if (recordedAtMs) delays.push(wallMs - Number(recordedAtMs))
      const sentAtMs = /"integratorID":"at-([\d.]+)-/.exec(chunks[0]?.toString('latin1') ?? '')?.[1]
      if (sentAtMs) delays.push(atMs - Number(sentAtMs))
      response.writeHead(204).end()
    })
  },
)
server.keepAliveTimeout = 30_000
server.listen(0, '127.0.0.1', () => process.send!({ port: (server.address() as AddressInfo).port }))

process.on('message', (message: { reset?: true; forget?: boolean; count?: true; delays?: true }) => {
  if (message.reset) {
    seen = new Set()
    forgets = message.forget ?? false
    delays = []
    doubled = firstAtMs = lastAtMs = busyReceipts = lastBusyAtMs = 0
  }
  if (message.count)
    process.send!({
      counts: {
        receipts: seen.size,
        doubled,
        firstAtMs,
        lastAtMs,
        busyReceipts,
        lastBusyAtMs,
        delays: message.delays ? delays : [],
      },
    })
})
process.on('disconnect', () => process.exit(0))
