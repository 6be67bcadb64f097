/**
 * Metrics in the Prometheus text format. What is counted are plain numbers, kept where things happen; they are turned into
 * samples when somebody asks, so that counting costs nothing. The only importer of prom-client.
 *
 * Labels have few values, known beforehand: never an id, a URL, or anything that a caller has sent.
 */
import { collectDefaultMetrics, Registry, type Metric } from 'prom-client'
import { VERSION } from './version.ts'

/**
 * By how often the event loop's lag is measured, in milliseconds; it counts in. With the usual 10 a process that waits
 * would wake up a hundred times a second for nothing else.
 */
const LAG_LOOK_MS = 50

export interface Sample {
  labels?: Record<string, string>
  value: number
}

export interface MetricText {
  contentType: string
  text: string
}

export interface Metrics {
  /** Only ever rises. */
  counter(name: string, help: string, collect: Collect<Sample[]>): void
  gauge(name: string, help: string, collect: Collect<Sample[]>): void
  histogram(name: string, help: string, collect: Collect<LabelledTally[]>): void
  /** All of it, as it is now. */
  read(): Promise<MetricText>
}

type Collect<Samples> = () => Samples | Promise<Samples>

export interface LabelledTally {
  labels?: Record<string, string>
  tally: Tally
}

/** @param ofProcess also memory, CPU, garbage collection and the event loop's lag; once a process */
export function createMetrics(ofProcess: boolean): Metrics {
  const registry = new Registry()
  if (ofProcess) collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: LAG_LOOK_MS })

  function add(type: 'counter' | 'gauge' | 'histogram', name: string, help: string, values: Collect<object[]>): void {
    // All that the registry asks of a metric. Its own classes keep values; ours only look.
    const metric = {
      name,
      help,
      type,
      get: async () => ({ name, help, type, values: await values(), aggregator: 'sum' }),
    }
    registry.registerMetric(metric as unknown as Metric)
  }
  const samples = (collect: Collect<Sample[]>) => async () =>
    (await collect()).map(({ labels = {}, value }) => ({ labels, value }))

  return {
    counter: (name, help, collect) => add('counter', name, help, samples(collect)),
    gauge: (name, help, collect) => add('gauge', name, help, samples(collect)),
    histogram: (name, help, collect) =>
      add('histogram', name, help, async () =>
        (await collect()).flatMap(({ labels = {}, tally }) => tally.samples(name, labels)),
      ),
    read: async () => ({ contentType: registry.contentType, text: await registry.metrics() }),
  }
}

/** How many values fell below each bound. */
export class Tally {
  readonly #bounds: readonly number[]
  readonly #counts: number[]
  #sum = 0

  /** @param bounds rising; what lies above the last one is counted, too */
  constructor(bounds: readonly number[]) {
    this.#bounds = bounds
    this.#counts = new Array(bounds.length + 1).fill(0)
  }

  add(value: number): void {
    let bucket = 0
    while (bucket < this.#bounds.length && value > this.#bounds[bucket]!) bucket += 1
    this.#counts[bucket]! += 1
    this.#sum += value
  }

  samples(name: string, labels: Record<string, string>): object[] {
    let count = 0
    const buckets = this.#counts.map((added, bucket) => {
      count += added
      const le = bucket < this.#bounds.length ? String(this.#bounds[bucket]) : '+Inf'
      return { metricName: `${name}_bucket`, labels: { ...labels, le }, value: count }
    })
    return [
      ...buckets,
      { metricName: `${name}_sum`, labels, value: this.#sum },
      { metricName: `${name}_count`, labels, value: count },
    ]
  }
}

/** Of a counter with one label: what was counted so far, by its values. */
export function samplesOf(label: string, counts: Map<string, number>): Sample[] {
  return [...counts].map(([value, count]) => ({ labels: { [label]: value }, value: count }))
}

/** What a process counts that is neither a request nor a delivery. */
export class ProcessCounts {
  /** Times that the database's clock moved by more than a second against ours. */
  clockJumps = 0
}

/** Those of a process, to which others are added. */
export function createProcessMetrics(counts: ProcessCounts): Metrics {
  const metrics = createMetrics(true)
  metrics.gauge('lis_build_info', 'The version that runs', () => [{ labels: { version: VERSION }, value: 1 }])
  metrics.counter('lis_clock_jumps_total', 'Times that the clock of the database moved against ours', () => [
    { value: counts.clockJumps },
  ])
  return metrics
}
