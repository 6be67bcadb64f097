/**
 * A TLS (or plain) server that writes exactly the bytes a test chooses: for answers that no HTTP library would send.
 */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer as createTcpServer, type AddressInfo, type Server, type Socket } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import type { DevTls } from '../../scripts/dev-tls.ts'

export interface RawServer {
  port: number
  /** Connections so far. */
  connections: number
  sockets: Set<Socket>
  close(): Promise<void>
}

/**
 * @param onRequest called when the head of a request has arrived, with its number on this connection from 1
 * @param tls undefined: plain TCP
 */
export async function startRawServer(
  tls: DevTls | undefined,
  onRequest: (socket: Socket, n: number) => void,
  onConnection: (socket: Socket) => void = () => {},
): Promise<RawServer> {
  const state = { connections: 0, sockets: new Set<Socket>() }
  const accept = (socket: Socket) => {
    state.connections += 1
    state.sockets.add(socket)
    let n = 0
    socket.on('error', () => {})
    socket.on('close', () => state.sockets.delete(socket))
    socket.on('data', (data) => {
      if (data.includes('POST ')) onRequest(socket, ++n)
    })
    onConnection(socket)
  }
  const server: Server = tls
    ? createTlsServer({ cert: readFileSync(tls.certificateFile), key: readFileSync(tls.keyFile) }, accept)
    : createTcpServer(accept)
  server.on('tlsClientError', () => {})
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    get connections() {
      return state.connections
    },
    sockets: state.sockets,
    port: (server.address() as AddressInfo).port,
    close: async () => {
      server.close()
      for (const socket of state.sockets) socket.destroy()
    },
  }
}
