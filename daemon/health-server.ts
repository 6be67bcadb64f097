/**
 * `/livez`, `/readyz` and `/metrics` of the daemon. Loopback only unless DAEMON_HOST says otherwise.
 */
import { unavailable } from '../src/errors.ts'
import { listen } from '../src/http-server.ts'
import type { Logger } from '../src/logger.ts'
import type { Metrics } from '../src/metrics.ts'
import { createProbeServer, OK_PAGE } from '../src/probe-server.ts'

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
  const ready = () => {
    const reason = notReady()
    if (reason !== undefined) throw unavailable(reason)
    return OK_PAGE
  }
  const server = createProbeServer({ '/livez': () => OK_PAGE, '/readyz': ready, '/metrics': () => metrics.read() }, log)
  return {
    port: await listen(server, port, host),
    close: async () => {
      server.close()
      server.closeAllConnections()
    },
  }
}
