/**
 * The rows of the benchmarks: what each measures, in which set it is, and what must hold.
 */
import type { Result } from './bench-result.ts'
import type { BenchWorld } from './bench-world.ts'
import { deliverBacklog, fanOutTo, sendPlain, type DeliveryRun, type PlainRun } from './delivery-bench.ts'
import { fanOutRate, idleShare } from './engine-bench.ts'
import { testsList } from './list-bench.ts'
import { latency, leadCreate, wholePath } from './path-bench.ts'
import type { Sizes } from './sizes.ts'
import { warmStart } from './start-bench.ts'

export interface Row {
  inQuick: boolean
  run(world: BenchWorld, sizes: Sizes): Promise<Result[]>
}

/** In flight at once: what one webhook may have (DELIVERY_MAX_IN_FLIGHT), and what a daemon keeps busy with 200 of them. */
const ONE_LANE = 10
const MANY_LANES = 64

/** The limit is looked at before and afterwards: within a minute a shared machine may become a third slower. */
async function besidePlain(
  world: BenchWorld,
  name: string,
  { deliveries }: Sizes,
  inFlight: number,
  run: () => Promise<DeliveryRun>,
): Promise<Result[]> {
  const before = await sendPlain(world, deliveries, inFlight)
  const { rate, costUs } = await run()
  const after = await sendPlain(world, deliveries, inFlight)
  const mean = (figure: (run: PlainRun) => number) => (figure(before) + figure(after)) / 2
  const limitCostUs = { sender: mean((run) => run.costUs.sender), receiver: mean((run) => run.costUs.receiver) }
  return [{ name, value: rate, unit: '1/s', limit: mean((run) => run.rate), costUs, limitCostUs }]
}

/** What one delivery costs the service and its database, so that backlogs of any size compare on any machine. */
async function backlog(world: BenchWorld, name: string, deliveries: number): Promise<Result[]> {
  const { rate, costUs } = await deliverBacklog(world, { webhooks: 200, deliveries })
  return [{ name, value: costUs.daemon! + costUs.database!, unit: 'us CPU', costUs, note: `${Math.round(rate)}/s` }]
}

const one = (name: string, unit: string, value: Promise<number>) =>
  value.then((v): Result[] => [{ name, unit, value: v }])

export const ROWS: Record<string, Row> = {
  delivery_one_webhook: {
    inQuick: true,
    run: (world, sizes) =>
      besidePlain(world, 'delivery_one_webhook', sizes, ONE_LANE, () => deliverBacklog(world, { webhooks: 1, deliveries: sizes.deliveries })),
  },
  delivery_200_webhooks: {
    inQuick: true,
    run: (world, sizes) =>
      besidePlain(world, 'delivery_200_webhooks', sizes, MANY_LANES, () => deliverBacklog(world, { webhooks: 200, deliveries: sizes.deliveries })),
  },
  fan_out: { inQuick: true, run: (world) => one('fan_out', '1/s', fanOutRate(world)) },
  fan_out_50: {
    inQuick: false,
    run: (world, sizes) => besidePlain(world, 'fan_out_50', sizes, MANY_LANES, () => fanOutTo(world, 50, sizes.deliveries / 50)),
  },
  whole_path: { inQuick: false, run: (world, sizes) => wholePath(world, sizes) },
  latency_20: { inQuick: false, run: (world, sizes) => latency(world, 20, sizes) },
  latency_100: { inQuick: false, run: (world, sizes) => latency(world, 100, sizes) },
  lead_create: { inQuick: true, run: (world, sizes) => leadCreate(world, sizes) },
  tests_list: { inQuick: true, run: (world, sizes) => testsList(world, sizes.listCalls) },
  backlog_10k: { inQuick: true, run: (world) => backlog(world, 'backlog_10k', 10_000) },
  backlog_100k: { inQuick: true, run: (world) => backlog(world, 'backlog_100k', 100_000) },
  backlog_1m: { inQuick: false, run: (world) => backlog(world, 'backlog_1m', 1_000_000) },
  idle_10: { inQuick: false, run: (world) => one('idle_10', '% of a core', idleShare(world, 10)) },
  idle_10k: { inQuick: true, run: (world) => one('idle_10k', '% of a core', idleShare(world, 10_000)) },
  start_warm: { inQuick: false, run: (world) => one('start_warm', 's', warmStart(world)) },
} // prettier-ignore

/** The unit of a figure says whether more is better. */
interface Target {
  of: 'ratio' | 'value'
  must: number
  aim?: number
}

export const TARGETS: Record<string, Target> = {
  delivery_one_webhook: { of: 'ratio', must: 0.75, aim: 0.9 },
  delivery_200_webhooks: { of: 'ratio', must: 0.75, aim: 0.9 },
  fan_out: { of: 'value', must: 30_000, aim: 60_000 },
  fan_out_50: { of: 'ratio', must: 0.6, aim: 0.8 },
  whole_path: { of: 'value', must: 2000, aim: 3500 },
  latency_20_p50: { of: 'value', must: 6, aim: 4 },
  latency_20_p99: { of: 'value', must: 20, aim: 9 },
  latency_100_p50: { of: 'value', must: 6, aim: 4 },
  latency_100_p99: { of: 'value', must: 20, aim: 9 },
  lead_create: { of: 'ratio', must: 0.5, aim: 0.7 },
  tests_list: { of: 'ratio', must: 0.6, aim: 0.8 },
  // Against backlog_10k.
  backlog_100k: { of: 'ratio', must: 1.2 },
  backlog_1m: { of: 'ratio', must: 1.2 },
  idle_10: { of: 'value', must: 3 },
  idle_10k: { of: 'value', must: 3 },
  start_warm: { of: 'value', must: 3 },
  first_run: { of: 'value', must: 90 },
  memory_api: { of: 'value', must: 200 },
  memory_daemon: { of: 'value', must: 250 },
  tables_10m_claim_p99: { of: 'ratio', must: 2 },
  tables_10m_log_list_p99: { of: 'ratio', must: 2 },
  tables_10m_purge_p99: { of: 'ratio', must: 2 },
}

/** Of these a smaller figure is better; of all others a larger one. */
const LESS_IS_BETTER = new Set(['ms', 's', '% of a core', 'us CPU', 'MB'])

export function isMet(target: Target, unit: string, value: number, ratio: number | null): boolean {
  const figure = target.of === 'ratio' ? ratio : value
  if (figure === null) return false
  return LESS_IS_BETTER.has(unit) ? figure <= target.must : figure >= target.must
}
