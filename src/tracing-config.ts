/**
 * The standard OTEL_* settings that this service knows, read for `config.ts`.
 */
import { VERSION } from './version.ts'

export interface TracingConfig {
  /** Where spans are posted as OTLP in JSON. */
  url: string
  /** Sent along, such as a collector's key. */
  headers: Record<string, string>
  /** undefined: the process's own name. */
  serviceName: string | undefined
  resourceAttributes: Record<string, string>
  sampler: { parentBased: boolean; root: 'on' | 'off' | 'ratio'; ratio: number }
  scheduleDelayMs: number
  maxQueueSize: number
  maxBatchSize: number
}

/** How `config.ts` reads a setting. */
export interface SettingReaders {
  text(name: string): string | undefined
  url(name: string, protocols: string[]): string | undefined
  integer(name: string, fallback: number, min: number, max: number): number
  faults: string[]
}

const SAMPLERS: Record<string, Omit<TracingConfig['sampler'], 'ratio'>> = {
  always_on: { parentBased: false, root: 'on' },
  always_off: { parentBased: false, root: 'off' },
  traceidratio: { parentBased: false, root: 'ratio' },
  parentbased_always_on: { parentBased: true, root: 'on' },
  parentbased_always_off: { parentBased: true, root: 'off' },
  parentbased_traceidratio: { parentBased: true, root: 'ratio' },
}

/** @returns undefined: off, as it is unless OTEL_TRACES_EXPORTER or an endpoint says otherwise */
export function readTracing({ text, url, integer, faults }: SettingReaders): TracingConfig | undefined {
  const HTTP = ['http:', 'https:']
  const tracesUrl = url('OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', HTTP)
  const baseUrl = url('OTEL_EXPORTER_OTLP_ENDPOINT', HTTP)
  const exporter = text('OTEL_TRACES_EXPORTER') ?? (tracesUrl || baseUrl ? 'otlp' : 'none')
  if (exporter !== 'otlp' && exporter !== 'none')
    faults.push(`OTEL_TRACES_EXPORTER must be otlp or none, it is "${exporter}"`)
  if (exporter !== 'otlp' || text('OTEL_SDK_DISABLED')?.toLowerCase() === 'true') return undefined

  const protocol = text('OTEL_EXPORTER_OTLP_TRACES_PROTOCOL') ?? text('OTEL_EXPORTER_OTLP_PROTOCOL') ?? 'http/json'
  if (protocol !== 'http/json') faults.push(`OTEL_EXPORTER_OTLP_PROTOCOL must be http/json, it is "${protocol}"`)
  const samplerName = text('OTEL_TRACES_SAMPLER') ?? 'parentbased_always_on'
  const sampler = SAMPLERS[samplerName]
  if (!sampler) faults.push(`OTEL_TRACES_SAMPLER must be one of ${Object.keys(SAMPLERS).join(', ')}`)
  const ratio = Number(text('OTEL_TRACES_SAMPLER_ARG') ?? 1)
  if (!(ratio >= 0 && ratio <= 1)) faults.push('OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1')
  const pairs = (name: string) => keyValues(name, text(name), faults)
  const maxQueueSize = integer('OTEL_BSP_MAX_QUEUE_SIZE', 2048, 1, 100_000)
  return {
    url: tracesUrl ?? `${(baseUrl ?? 'http://localhost:4318').replace(/(?<!\/)\/+$/, '')}/v1/traces`,
    headers: { ...pairs('OTEL_EXPORTER_OTLP_HEADERS'), ...pairs('OTEL_EXPORTER_OTLP_TRACES_HEADERS') },
    serviceName: text('OTEL_SERVICE_NAME'),
    resourceAttributes: { 'service.version': VERSION, ...pairs('OTEL_RESOURCE_ATTRIBUTES') },
    sampler: { ...(sampler ?? { parentBased: true, root: 'on' }), ratio },
    scheduleDelayMs: integer('OTEL_BSP_SCHEDULE_DELAY', 5000, 1, 600_000),
    maxQueueSize,
    maxBatchSize: Math.min(integer('OTEL_BSP_MAX_EXPORT_BATCH_SIZE', 512, 1, 100_000), maxQueueSize),
  }
}

/** `a=1,b=2`, each part URL-encoded. A fault names the setting alone: the values may be secrets. */
function keyValues(name: string, value: string | undefined, faults: string[]): Record<string, string> {
  const parts = (value ?? '').split(',').flatMap((part) => part.trim() || [])
  try {
    return Object.fromEntries(
      parts.map((part) => {
        const at = part.indexOf('=')
        if (at < 1) throw new URIError()
        return [decodeURIComponent(part.slice(0, at).trim()), decodeURIComponent(part.slice(at + 1).trim())]
      }),
    )
  } catch {
    faults.push(`${name} must be comma-separated pairs such as key=value, URL-encoded`)
    return {}
  }
}
