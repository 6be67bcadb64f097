/**
 * Traces for OpenTelemetry, from a request to the attempts of the events that it recorded. Off unless configured, and then
 * nothing of the SDK is loaded.
 */
import type { TracedService, Tracing } from './spans.ts'
import type { TracingConfig } from './tracing-config.ts'

/**
 * @param onFault spans could not be sent; told at most once a minute
 * @returns undefined where tracing is off
 */
export async function startTracing(
  config: TracingConfig | undefined,
  service: TracedService,
  onFault: (error: unknown) => void,
): Promise<Tracing | undefined> {
  if (!config) return undefined
  const { createTracing } = await import('./tracing-sdk.ts')
  return createTracing(config, service, onFault)
}
