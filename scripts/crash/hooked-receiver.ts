/**
 * The integrators of a crash run: an HTTPS server whose path names the webhook. It writes each request and each answer into
 * the ledger, and calls back at the moments at which a sender may be killed.
 */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:https'
import { connect, createServer as createTcpServer, type AddressInfo, type Server, type Socket } from 'node:net'
import { monotonicMs } from '../../src/clock.ts'
import type { DevTls } from '../dev-tls.ts'
import type { Receipt } from './ledger-check.ts'
import type { Ledger } from './ledger.ts'

/**
 * What a webhook answers; `never`: nothing, and the connection stays open; `reset`: the connection is reset.
 */
export type Behaviour = number | 'never' | 'reset'

export interface HookedReceiver {
  receipts: Receipt[]
  /** By webhook, when a promise is resolved where it is one; whoever is not named answers 204. */
  behaviours: Map<string, (receipt: Receipt) => Behaviour | Promise<Behaviour>>
  /** A control: the webhook's next receipt is answered and not written down. */
  forget(webhook: string): void
  urlOf(webhook: string): string
  /** The same by way of a relay that can stop in the middle of a request. */
  relayedUrlOf(webhook: string): string
  /** `hit` is called once, when half of the next relayed request has gone through; the rest never does. */
  armHalf(hit: () => void): void
  close(): void
}

/** More than any record of a handshake but the client's first one, less than any request with its event. */
const REQUEST_BYTES = 400
/** Of what is the last of a request: its end stays away. */
const KEPT_BACK_BYTES = 60

export async function startHookedReceiver(tls: DevTls, ledger?: Ledger): Promise<HookedReceiver> {
  const receipts: Receipt[] = []
  const behaviours: HookedReceiver['behaviours'] = new Map()
  const forgotten = new Set<string>()
  const server = createServer({ cert: readFileSync(tls.certificateFile), key: readFileSync(tls.keyFile) })
  server.keepAliveTimeout = 30_000
  // By the sender's port: what a request knows is the encrypted connection, which can't be reset.
  const connections = new Map<number, Socket>()
  server.on('connection', (socket: Socket) => {
    const { remotePort } = socket
    connections.set(remotePort!, socket)
    socket.on('close', () => connections.delete(remotePort!))
  })
  server.on('request', (request, response) => {
    request.resume()
    request.on('end', async () => {
      const webhook = request.url!.slice(1)
      const event = String(request.headers['webhook-id']).replace(/^evt_/, '')
      const receipt: Receipt = { webhook, event, atMs: monotonicMs(), answered: undefined }
      if (forgotten.delete(webhook)) return void response.writeHead(204).end()
      const n = receipts.push(receipt)
      ledger?.append('receiver', { kind: 'received', n, webhook, event, atMs: receipt.atMs })
      const behaviour = (await behaviours.get(webhook)?.(receipt)) ?? 204
      if (behaviour === 'never' || response.destroyed) return
      if (behaviour === 'reset') return void connections.get(request.socket.remotePort!)?.resetAndDestroy()
      response.on('finish', () => {
        receipt.answered = { status: behaviour, atMs: monotonicMs() }
        ledger?.append('receiver', { kind: 'answered', n, status: behaviour, atMs: receipt.answered.atMs })
      })
      response.writeHead(behaviour).end()
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const relay = await startRelay(port)
  return {
    receipts,
    behaviours,
    forget: (webhook) => forgotten.add(webhook),
    urlOf: (webhook) => `https://127.0.0.1:${port}/${webhook}`,
    relayedUrlOf: (webhook) => `https://127.0.0.1:${relay.port}/${webhook}`,
    armHalf: relay.armHalf,
    close: () => {
      relay.server.close()
      server.close()
      server.closeAllConnections()
    },
  }
}

async function startRelay(target: number): Promise<{ server: Server; port: number; armHalf(hit: () => void): void }> {
  let armed: (() => void) | undefined
  const server = createTcpServer({ noDelay: true }, (downstream) => {
    const upstream = connect(target, '127.0.0.1')
    let chunks = 0
    downstream.on('data', (chunk) => {
      const hit = armed
      chunks++
      if (!hit || chunks === 1 || chunk.length < REQUEST_BYTES) return void upstream.write(chunk)
      armed = undefined
      upstream.write(chunk.subarray(0, chunk.length - KEPT_BACK_BYTES))
      downstream.pause()
      hit()
    })
    upstream.on('data', (chunk) => downstream.write(chunk))
    for (const [from, to] of [[downstream, upstream], [upstream, downstream]] as const) {
      from.on('error', () => {})
      from.on('close', () => to.destroy())
    } // prettier-ignore
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return { server, port: (server.address() as AddressInfo).port, armHalf: (hit) => (armed = hit) }
}
