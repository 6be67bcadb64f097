import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'

export interface TcpProxy {
  port: number
  /** `pass`; `hold`: bytes are kept back and connections stay open; `refuse`: connections are cut and refused. */
  mode: 'pass' | 'hold' | 'refuse'
  close(): Promise<void>
}

/** Stands in front of a server and misbehaves on demand. */
export async function startTcpProxy(targetPort: number): Promise<TcpProxy> {
  const sockets = new Set<Socket>()
  let mode: TcpProxy['mode'] = 'pass'
  const server = createServer((downstream) => {
    if (mode === 'refuse') return void downstream.destroy()
    const upstream = connect(targetPort, '127.0.0.1')
    for (const [from, to] of [
      [downstream, upstream],
      [upstream, downstream],
    ] as const) {
      sockets.add(from)
      from.on('error', () => {})
      from.on('close', () => {
        sockets.delete(from)
        to.destroy()
      })
      from.on('data', (data) => to.write(data))
      if (mode === 'hold') from.pause()
    }
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    port: (server.address() as AddressInfo).port,
    get mode() {
      return mode
    },
    set mode(next) {
      mode = next
      for (const socket of sockets) {
        if (next === 'refuse') socket.destroy()
        else if (next === 'hold') socket.pause()
        else socket.resume()
      }
    },
    close: async () => {
      server.close()
      for (const socket of sockets) socket.destroy()
    },
  }
}
