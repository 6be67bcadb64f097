/**
 * `make bench-long`: what takes long, once each: memory under 15 minutes of load, tables with 10,000,000 events, and the first
 * `make run` of a fresh clone. Its rows join those of `make bench` in `bench.json` in DATA_DIR.
 *
 * `--rows name,name`: of memory, tables_10m, first_run. `--minutes n`: of the load, 15 by default. `--events n`: 10,000,000 by default.
 */
import { execFileSync } from 'node:child_process'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { loadEnvFile, readConfig } from '../../src/config.ts'
import { print, reportsOf, write } from './bench-report.ts'
import type { Result } from './bench-result.ts'
import { BenchWorld } from './bench-world.ts'
import { memory } from './memory-bench.ts'
import { secondsToReady } from './start-bench.ts'
import { largeTables, requireDisk } from './tables-bench.ts'

const ROOT = join(import.meta.dirname, '..', '..')

/** The last commit in a clone without packages; the database server is what the machine has. */
async function firstRun(world: BenchWorld): Promise<Result[]> {
  const clone = join(world.folder, 'clone')
  execFileSync('git', ['clone', '--quiet', ROOT, clone])
  return [{ name: 'first_run', value: await secondsToReady(clone, join(clone, '.data')), unit: 's' }]
}

async function main(): Promise<void> {
  const { values: options } = parseArgs({
    options: {
      rows: { type: 'string', default: 'first_run,memory,tables_10m' },
      minutes: { type: 'string', default: '15' },
      events: { type: 'string', default: '10000000' },
    },
  })
  loadEnvFile()
  const { dataDir } = readConfig()
  const rows: Record<string, (world: BenchWorld) => Promise<Result[]>> = {
    first_run: firstRun,
    memory: (world) => memory(world, Number(options.minutes), Math.min(1_000_000, Number(options.events))),
    tables_10m: (world) => largeTables(world, Number(options.events)),
  }
  const names = options.rows.split(',')
  const unknown = names.find((name) => !rows[name])
  if (unknown) throw new Error(`no row ${unknown}; there are ${Object.keys(rows).join(', ')}`)
  if (names.includes('tables_10m')) await requireDisk(tmpdir(), Number(options.events))
  const results: Result[][] = []
  for (const name of names) {
    process.stderr.write(`bench: ${name} …\n`)
    const world = await BenchWorld.open()
    try {
      results.push(await rows[name]!(world))
    } finally {
      await world.close()
    }
  }
  const reports = reportsOf(results)
  print(reports)
  console.log(`\nbench: written to ${write(reports, dataDir)}`)
}

main().then(
  () => process.exit(0),
  (error: Error) => {
    process.stderr.write(`bench: ${error.stack}\n`)
    process.exit(1)
  },
)
