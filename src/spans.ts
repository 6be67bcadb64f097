/**
 * What traces are made of.
 */
/**
 * What a span may tell, an allow list: nothing of a patient, no URL, no query, no header. Whatever else is passed along is
 * dropped.
 */
export const SPAN_ATTRIBUTES = [
  'error.type', 'http.request.method', 'http.response.status_code', 'http.route', 'lis.account_id', 'lis.attempt',
  'lis.event_id', 'lis.event_type', 'lis.operation', 'lis.webhook_id',
] as const // prettier-ignore

export type SpanAttributes = Partial<Record<(typeof SPAN_ATTRIBUTES)[number], string | number | null | undefined>>

/** The span of a request, while it runs. */
export interface RequestSpan {
  /** For what belongs to the same trace; undefined: not sampled, nobody will see it. */
  traceParent: string | undefined
  end(name: string, attributes: SpanAttributes, failed: boolean, at: Date): void
}

/** One that is over. */
export interface EndedSpan {
  name: string
  /** `client`: a request to somebody else. */
  kind: 'internal' | 'client'
  /** The context that it is a part of, as in the header `traceparent`. */
  traceParent: string
  startedAt: Date
  durationMs: number
  failed: boolean
  attributes: SpanAttributes
}

export interface Tracing {
  /** @param traceParent the caller's header, whatever it holds */
  startRequest(traceParent: string | undefined, at: Date): RequestSpan
  record(span: EndedSpan): void
  /** Sends what waits, within a second or two: a collector that hangs must not hold a process. */
  stop(): Promise<void>
}

export interface TracedService {
  name: 'lis-api' | 'lis-daemon'
  version: string
}
