/**
 * `/livez`, `/readyz` and `/metrics` of the daemon. Loopback only unless DAEMON_HOST says otherwise.
 */
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Logger } from '../src/logger.ts'
import { answerMetrics } from '../src/metrics-server.ts'
import type { Metrics } from '../src/metrics.ts'

export interface HealthServer {
  port: number
  close(): Promise<void>
}

/**
 * @param notReady the reason why not, or undefined when everything serves
 * @throws EADDRINUSE when the port is taken
 */
export async function startHealthServer(
  host: string,
  port: number,
  notReady: () => string | undefined,
  metrics: Metrics,
  log: Logger,
): Promise<HealthServer> {
  const server: Server = createServer((request, response) => {
    const answer = (status: number, body: object) => {
      response.writeHead(status, { 'content-type': 'application/json' })
      response.end(JSON.stringify(body))
    }
    const path = request.url?.split('?')[0]
    if (request.method === 'GET' && path === '/metrics') return void answerMetrics(metrics, response, log)
    if (request.method !== 'GET' || (path !== '/livez' && path !== '/readyz'))
      return answer(404, { status: 'not found' })
    if (path === '/livez') return answer(200, { status: 'ok' })
    const reason = notReady()
    answer(
      reason === undefined ? 200 : 503,
      reason === undefined ? { status: 'ok' } : { status: 'unavailable', reason },
    )
  })
  server.listen(port, host)
  await once(server, 'listening')
  return {
    port: (server.address() as AddressInfo).port,
    close: async () => {
      server.close()
      server.closeAllConnections()
    },
  }
}
