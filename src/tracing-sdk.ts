/**
 * Spans by OpenTelemetry's own SDK. The only importer of it, and imported only where tracing is on. Nothing global is
 * registered but the handler of its errors.
 */
import {
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  trace,
  TraceFlags,
  type Attributes,
  type Context,
} from '@opentelemetry/api'
import { parseTraceParent, setGlobalErrorHandler } from '@opentelemetry/core'
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http'
import { defaultResource, resourceFromAttributes } from '@opentelemetry/resources'
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  BatchSpanProcessor,
  ParentBasedSampler,
  TraceIdRatioBasedSampler,
  TracerProvider,
  type Sampler,
  type Span,
} from '@opentelemetry/sdk-trace'
import { monotonicMs } from './clock.ts'
import type { TracingConfig } from './tracing-config.ts'
import { SPAN_ATTRIBUTES, type SpanAttributes, type TracedService, type Tracing } from './spans.ts'

const STOP_LIMIT_MS = 1500
const TELL_FAULT_EACH_MS = 60_000

export function createTracing(
  config: TracingConfig,
  service: TracedService,
  onFault: (error: unknown) => void,
): Tracing {
  setGlobalErrorHandler(atMostEach(TELL_FAULT_EACH_MS, onFault))
  const provider = new TracerProvider({
    sampler: samplerOf(config.sampler),
    resource: defaultResource().merge(
      resourceFromAttributes({ 'service.name': config.serviceName ?? service.name, ...config.resourceAttributes }),
    ),
    spanProcessors: [
      new BatchSpanProcessor({
        exporter: new OTLPTraceExporter({ url: config.url, headers: config.headers }),
        scheduledDelayMillis: config.scheduleDelayMs,
        maxQueueSize: config.maxQueueSize,
        maxExportBatchSize: config.maxBatchSize,
      }),
    ],
  })
  const tracer = provider.getTracer('laboratory-integration-service', service.version)

  return {
    startRequest(traceParent, startTime) {
      const span = tracer.startSpan('request', { kind: SpanKind.SERVER, startTime }, contextOf(traceParent)) as Span
      return {
        traceParent: traceParentOf(span),
        end(name, attributes, failed, at) {
          span.updateName(name)
          span.setAttributes(allowed(attributes))
          if (failed) span.setStatus({ code: SpanStatusCode.ERROR })
          span.end(at)
        },
      }
    },
    record({ name, kind, traceParent, startedAt, durationMs, failed, attributes }) {
      const options = {
        kind: kind === 'client' ? SpanKind.CLIENT : SpanKind.INTERNAL,
        startTime: startedAt,
        attributes: allowed(attributes),
      }
      const span = tracer.startSpan(name, options, contextOf(traceParent))
      if (failed) span.setStatus({ code: SpanStatusCode.ERROR })
      span.end(new Date(startedAt.getTime() + durationMs))
    },
    stop: () => within(STOP_LIMIT_MS, provider.shutdown()),
  }
}

function samplerOf({ root, parentBased, ratio }: TracingConfig['sampler']): Sampler {
  const samplers = {
    on: () => new AlwaysOnSampler(),
    off: () => new AlwaysOffSampler(),
    ratio: () => new TraceIdRatioBasedSampler(ratio),
  }
  return parentBased ? new ParentBasedSampler({ root: samplers[root]() }) : samplers[root]()
}

/** A header that is none begins a new trace, as the W3C asks. */
function contextOf(traceParent: string | undefined): Context {
  const parent = traceParent === undefined ? null : parseTraceParent(traceParent)
  return parent ? trace.setSpanContext(ROOT_CONTEXT, { ...parent, isRemote: true }) : ROOT_CONTEXT
}

function traceParentOf(span: Pick<Span, 'spanContext'>): string | undefined {
  const { traceId, spanId, traceFlags } = span.spanContext()
  return traceFlags & TraceFlags.SAMPLED ? `00-${traceId}-${spanId}-01` : undefined
}

function allowed(attributes: SpanAttributes): Attributes {
  const kept: Attributes = {}
  for (const name of SPAN_ATTRIBUTES) {
    const value = attributes[name]
    if (value !== undefined && value !== null) kept[name] = value
  }
  return kept
}

function atMostEach(spacingMs: number, tell: (error: unknown) => void): (error: unknown) => void {
  let toldAtMs = -Infinity
  return (error) => {
    if (monotonicMs() - toldAtMs < spacingMs) return
    toldAtMs = monotonicMs()
    tell(error)
  }
}

async function within(limitMs: number, work: Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, limitMs)
  })
  // What can't be sent is lost, and that was told by the handler of errors.
  await Promise.race([work.catch(() => {}), late])
  clearTimeout(timer)
}
