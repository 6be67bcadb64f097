/**
 * Receives the datagrams that say "there is something to do". Anyone may send one; all that it can cause is one tick.
 */
import { createSocket, type Socket } from 'node:dgram'
import { once } from 'node:events'
import type { networkInterfaces } from 'node:os'
import { readHint, type Hint } from '../src/events/daemon-hints.ts'

export interface HintListener {
  port: number
  close(): void
}

/**
 * What others send hints to. "All addresses", as in a container, is none that can be sent to: then the first that others may
 * know. A wrong one costs a quarter of a second, nothing more.
 */
export function hintHostOf(host: string, interfaces: ReturnType<typeof networkInterfaces>): string {
  if (host !== '0.0.0.0' && host !== '::') return host
  const outward = Object.values(interfaces).flatMap((addresses) =>
    (addresses ?? []).filter(({ internal }) => !internal),
  )
  return outward.find(({ family }) => family === 'IPv4')?.address ?? '127.0.0.1'
}

/**
 * @param port 0: any free one
 * @throws EADDRINUSE when the port is taken
 */
export async function listenForHints(host: string, port: number, onHint: (hint: Hint) => void): Promise<HintListener> {
  const socket: Socket = createSocket(host.includes(':') ? 'udp6' : 'udp4')
  socket.bind(port, host)
  await once(socket, 'listening')
  socket.on('error', () => {})
  socket.on('message', (message) => onHint(readHint(message)))
  return { port: socket.address().port, close: () => socket.close() }
}
