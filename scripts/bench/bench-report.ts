/**
 * From runs to the table and to `bench.json`.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { cpus } from 'node:os'
import { join } from 'node:path'
import { median, sum, type Result } from './bench-result.ts'
import { isMet, TARGETS } from './bench-rows.ts'

/** Rows whose limit is another row of the same runs. */
const LIMITED_BY: Record<string, string> = { backlog_100k: 'backlog_10k', backlog_1m: 'backlog_10k' }

export interface Report {
  name: string
  value: number
  unit: string
  limit: number | null
  /** The median of each run's own ratio: the two were measured within seconds, so that what else the machine does falls on both. */
  ratio: number | null
  min: number
  max: number
  runs: number
  /** CPU time of all processes together: what the ratio comes to where nothing else runs and no core is ever idle. */
  cpuRatio: number | null
  must: number | null
  aim: number | null
  isMet: boolean | null
  costUs: Record<string, number> | null
  limitCostUs: Record<string, number> | null
  note: string | null
}

/** @param runs of all rows, each with its figures */
export function reportsOf(runs: Result[][]): Report[] {
  const byName = Map.groupBy(runs.flat(), ({ name }) => name)
  return [...byName].map(([name, results]) => reportOf(name, results, byName.get(LIMITED_BY[name] ?? '')))
}

function reportOf(name: string, results: Result[], other: Result[] | undefined): Report {
  const first = results[0]!
  const values = results.map(({ value }) => value)
  const value = median(values)
  const medianOf = (numbers: number[]) => (numbers.length > 0 ? median(numbers) : null)
  const limits = results.flatMap(({ limit }) => (limit === undefined ? [] : [limit]))
  const limit = other ? median(other.map((result) => result.value)) : medianOf(limits)
  const ratios = results.flatMap((result) => (result.limit === undefined ? [] : [result.value / result.limit]))
  const ratio = other ? value / limit! : medianOf(ratios)
  const cpuRatios = results.flatMap(({ costUs, limitCostUs }) =>
    costUs && limitCostUs ? [sum(limitCostUs) / sum(costUs)] : [],
  )
  const target = TARGETS[name]
  return {
    name,
    value,
    unit: first.unit,
    limit,
    ratio,
    min: Math.min(...values),
    max: Math.max(...values),
    runs: values.length,
    cpuRatio: medianOf(cpuRatios),
    must: target?.must ?? null,
    aim: target?.aim ?? null,
    isMet: target ? isMet(target, first.unit, value, ratio) : null,
    costUs: first.costUs ?? null,
    limitCostUs: first.limitCostUs ?? null,
    note: first.note ?? null,
  }
}

export function print(reports: Report[]): void {
  console.log(`${cpus().length} x ${cpus()[0]?.model}, Node ${process.version}; CPU in us each\n`)
  console.log(
    '| name | median | min | max | unit | limit | ratio | CPU ratio | must | aim | met | CPU | CPU of the limit | |',
  )
  console.log('|---|---|---|---|---|---|---|---|---|---|---|---|---|---|')
  for (const row of reports) {
    const cells = [
      row.name,
      ...[row.value, row.min, row.max].map(figure),
      row.unit,
      row.limit === null ? '' : figure(row.limit),
      row.ratio?.toFixed(2) ?? '',
      row.cpuRatio?.toFixed(2) ?? '',
      row.must ?? '',
      row.aim ?? '',
      row.isMet === null ? '' : row.isMet ? 'yes' : 'NO',
      costText(row.costUs),
      costText(row.limitCostUs),
      row.note ?? '',
    ]
    console.log(`| ${cells.join(' | ')} |`)
  }
}

function figure(value: number): string {
  return value.toFixed(value < 100 ? 2 : 0)
}

function costText(costs: Record<string, number> | null): string {
  return costs ? Object.entries(costs).map(([part, us]) => `${part} ${Math.round(us)}`).join(', ') : '' // prettier-ignore
}

/**
 * What other commands have measured stays in it.
 * @returns the file
 */
export function write(reports: Report[], dataDir: string): string {
  mkdirSync(dataDir, { recursive: true })
  const file = join(dataDir, 'bench.json')
  const before: Report[] = existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : []
  const names = new Set(reports.map(({ name }) => name))
  const all = [...before.filter(({ name }) => !names.has(name)), ...reports]
  writeFileSync(file, `${JSON.stringify(all, null, 2)}\n`)
  return file
}
