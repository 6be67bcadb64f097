/**
 * A collector of OpenTelemetry: takes OTLP over HTTP in JSON, and keeps the spans.
 */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface CollectedSpan {
  service: string
  name: string
  kind: number
  traceId: string
  spanId: string
  parentSpanId: string | undefined
  startMs: number
  endMs: number
  failed: boolean
  attributes: Record<string, string | number>
}

export interface TraceCollector {
  /** For OTEL_EXPORTER_OTLP_ENDPOINT. */
  url: string
  spans: CollectedSpan[]
  /** All that came, as text. */
  received(): string
  connections(): number
  close(): Promise<void>
}

interface AnyValue {
  stringValue?: string
  intValue?: string | number
}
interface KeyValue {
  key: string
  value: AnyValue
}

const valuesOf = (attributes: KeyValue[]): CollectedSpan['attributes'] =>
  Object.fromEntries(
    attributes.map(({ key, value }) => [key, value.stringValue ?? Number(value.intValue ?? Number.NaN)] as const),
  )

export async function startTraceCollector(): Promise<TraceCollector> {
  const spans: CollectedSpan[] = []
  let text = ''
  let connections = 0
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk as Buffer)
    const body = Buffer.concat(chunks).toString()
    text += `${JSON.stringify(request.headers)}\n${body}\n`
    for (const { resource, scopeSpans } of JSON.parse(body).resourceSpans) {
      const service = String(valuesOf(resource.attributes)['service.name'])
      for (const span of scopeSpans.flatMap((scope: { spans: any[] }) => scope.spans)) {
        spans.push({
          service,
          name: span.name,
          kind: span.kind,
          traceId: span.traceId,
          spanId: span.spanId,
          parentSpanId: span.parentSpanId,
          startMs: Number(span.startTimeUnixNano) / 1e6,
          endMs: Number(span.endTimeUnixNano) / 1e6,
          failed: span.status?.code === 2,
          attributes: valuesOf(span.attributes),
        })
      }
    }
    response.writeHead(request.url === '/v1/traces' && request.method === 'POST' ? 200 : 404)
    response.end('{}')
  })
  server.on('connection', () => (connections += 1))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    spans,
    received: () => text,
    connections: () => connections,
    close: async () => {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}
