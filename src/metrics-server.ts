/**
 * `GET /metrics` of the API, on a port of its own that only this machine reaches: never on the public one.
 */
import type { Server, ServerResponse } from 'node:http'
import { createHttpServer } from './http-server.ts'
import { errorFields, type Logger } from './logger.ts'
import type { Metrics } from './metrics.ts'

/** To be put on METRICS_PORT. */
export function createMetricsServer(metrics: Metrics, log: Logger): Server {
  return createHttpServer((request, response) => {
    if (request.method === 'GET' && request.url?.split('?')[0] === '/metrics') {
      void answerMetrics(metrics, response, log)
      return
    }
    response.writeHead(404, { 'content-type': 'text/plain; charset=utf-8' })
    response.end('there is only /metrics here\n')
  })
}

export async function answerMetrics(metrics: Metrics, response: ServerResponse, log: Logger): Promise<void> {
  try {
    const { contentType, text } = await metrics.read()
    response.writeHead(200, { 'content-type': contentType })
    response.end(text)
  } catch (error) {
    log.error('metrics.failed', errorFields(error))
    response.writeHead(500).end()
  }
}
