/**
 * Listens on every address of this network at once. What arrives at one of the two public addresses gets a receiver's
 * answer; whatever arrives at any other one has touched a canary.
 */
import { readFileSync } from 'node:fs'
import { once } from 'node:events'
import { createServer as createHttpsServer } from 'node:https'
import { connect, createServer, type Server, type Socket } from 'node:net'
import type { DevTls } from '../dev-tls.ts'

export const PUBLIC = ['8.8.8.8', '2606:4700:4700::1111'] as const
/** What endpoints may have, and what redirects may lead to. */
const PORTS = [80, 443, 8443]
const CHECK_PORT = 443
/** On loopback a connection is made at once or never. */
const CHECK_MS = 500

export class Canaries {
  /** Connections to public addresses. */
  permitted = 0
  /** The paths that were asked for there. */
  readonly received: string[] = []
  /** `address:port` of each connection to any other one. */
  touched: string[] = []
  readonly #servers: Server[] = []
  readonly #receiver

  private constructor(tls: DevTls) {
    // A connection for each request: each has to find its address again.
    const headers = { connection: 'close' }
    this.#receiver = createHttpsServer({ cert: readFileSync(tls.certificateFile), key: readFileSync(tls.keyFile) })
    this.#receiver.on('request', (request, response) => {
      this.received.push(request.url!)
      request.resume()
      const [, what, status, target] = request.url!.split('/')
      if (what === 'redirect') response.writeHead(Number(status), { ...headers, location: decodeURIComponent(target!) })
      else response.writeHead(204, headers)
      response.end()
    })
    this.#receiver.on('tlsClientError', () => {})
  }

  static async listen(tls: DevTls): Promise<Canaries> {
    const canaries = new Canaries(tls)
    for (const port of PORTS) {
      const server = createServer((socket) => canaries.#arrived(socket))
      server.listen(port, '::')
      await once(server, 'listening')
      canaries.#servers.push(server)
    }
    return canaries
  }

  #arrived(socket: Socket): void {
    socket.on('error', () => {})
    // Gone again already.
    const address = socket.localAddress?.replace('::ffff:', '')
    if (PUBLIC.includes(address as (typeof PUBLIC)[number]) && socket.localPort === CHECK_PORT) {
      this.permitted += 1
      this.#receiver.emit('connection', socket)
      return
    }
    this.touched.push(`${address}:${socket.localPort}`)
    socket.destroy()
  }

  /** Touches a canary, to see that it would tell. @returns whether the kernel carries anything to that address at all */
  async canBeTouched(address: string): Promise<boolean> {
    const before = this.touched.length
    const socket = connect(CHECK_PORT, address)
    const isConnected = await new Promise<boolean>((resolve) => {
      socket.on('connect', () => resolve(true))
      socket.on('error', () => resolve(false))
      socket.setTimeout(CHECK_MS, () => resolve(false))
    })
    if (!isConnected) {
      socket.destroy()
      return false
    }
    await once(socket, 'close')
    if (this.touched.length === before) throw new Error(`the canary at ${address} was touched and did not tell`)
    return true
  }

  close(): void {
    for (const server of this.#servers) server.close()
    this.#receiver.closeAllConnections()
  }
}
