/**
 * The lab's gateways and a collector of traces as one HTTP server that keeps what it gets and says it all back: what answers is
 * a stranger, and nothing of what it says may be kept.
 */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface GatewayCall {
  path: string
  body: Buffer
}

export interface HostileGateways {
  url: string
  calls: GatewayCall[]
  /** What the SMS gateway has taken. */
  texts(): { to: string; text: string }[]
  close(): void
}

/** @param statusOf of the answer to a call, with how many like it (same path and body) there were before */
export async function startHostileGateways(
  statusOf: (call: GatewayCall, before: number) => number,
): Promise<HostileGateways> {
  const calls: GatewayCall[] = []
  const server = createServer(async (req, res) => {
    const chunks: Buffer[] = []
    for await (const chunk of req) chunks.push(chunk as Buffer)
    const call = { path: req.url ?? '/', body: Buffer.concat(chunks) }
    const before = calls.filter(({ path, body }) => path === call.path && body.equals(call.body)).length
    calls.push(call)
    res.writeHead(statusOf(call, before), { 'content-type': 'application/json' }).end(call.body)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    calls,
    texts: () => calls.filter(({ path }) => path === '/sms').map(({ body }) => JSON.parse(body.toString('utf8'))),
    close: () => {
      server.closeAllConnections()
      server.close()
    },
  }
}
