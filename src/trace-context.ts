/**
 * The W3C trace context of the request that is being served, for what outlives it: the event that it records. Knows nothing
 * of OpenTelemetry, and is empty where nobody traces.
 */
import { AsyncLocalStorage } from 'node:async_hooks'

const contexts = new AsyncLocalStorage<string>()

/** @param traceParent as in the header `traceparent` */
export function withTraceParent<T>(traceParent: string, work: () => T): T {
  return contexts.run(traceParent, work)
}

/** Null: the request is not traced, or not sampled. */
export function currentTraceParent(): string | null {
  return contexts.getStore() ?? null
}
