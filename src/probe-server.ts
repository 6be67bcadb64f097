/**
 * What probes and Prometheus ask on ports of their own: a few pages to be read, and every refusal in the API's shape.
 */
import { randomUUID } from 'node:crypto'
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import { toErrorResponse } from './error-response.ts'
import { DomainError, notFound } from './errors.ts'
import { createHttpServer, requestIdOf, requireOneHost } from './http-server.ts'
import { errorFields, type Logger } from './logger.ts'
import type { Metrics } from './metrics.ts'

interface Page {
  contentType: string
  text: string
}

const JSON_TYPE = 'application/json; charset=utf-8'

type Pages = Map<string, () => Page | Promise<Page>>

/** What a probe of something that is well gets. */
export const OK_PAGE: Page = { contentType: JSON_TYPE, text: JSON.stringify({ status: 'ok' }) }

/** To be put on METRICS_PORT: never on the public one. */
export function createMetricsServer(metrics: Metrics, log: Logger): Server {
  return createProbeServer({ '/metrics': () => metrics.read() }, log)
}

/** @param pages by path; what one of them throws is answered as the API would */
export function createProbeServer(pages: Record<string, () => Page | Promise<Page>>, log: Logger): Server {
  const byPath = new Map(Object.entries(pages))
  return createHttpServer((request, response) => void answer(byPath, request, response, log))
}

async function answer(pages: Pages, request: IncomingMessage, response: ServerResponse, log: Logger): Promise<void> {
  const requestId = requestIdOf(request, randomUUID)
  response.setHeader('X-Request-Id', requestId)
  response.setHeader('X-Content-Type-Options', 'nosniff')
  response.setHeader('Cache-Control', 'no-store')
  try {
    requireOneHost(request)
    const { contentType, text } = await pageOf(pages, request)()
    send(response, 200, contentType, text)
  } catch (error) {
    if (!(error instanceof DomainError)) log.error('probe.failed', { ...errorFields(error), requestId })
    const { status, headers, body } = toErrorResponse(error, requestId)
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value)
    send(response, status, JSON_TYPE, JSON.stringify(body))
  }
}

function pageOf(pages: Pages, { method, url }: IncomingMessage) {
  const page = pages.get(url?.split('?')[0] ?? '')
  if (!page) throw notFound('there is nothing at this path')
  if (method !== 'GET' && method !== 'HEAD') {
    throw new DomainError('method_not_allowed', 'method_not_allowed', 'this path takes GET, HEAD', {
      headers: { Allow: 'GET, HEAD' },
    })
  }
  return page
}

function send(response: ServerResponse, status: number, contentType: string, text: string): void {
  // Node leaves the text of an answer to HEAD out, and its length in.
  response.writeHead(status, { 'Content-Type': contentType, 'Content-Length': Buffer.byteLength(text) }).end(text)
}
