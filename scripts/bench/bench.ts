/**
 * `make bench`, `make bench-quick`: what the service reaches, each row beside the machine's own limit measured in the same run.
 * Receipts are counted at the receiver: the run fails when one is missing or came twice. Writes `bench.json` in DATA_DIR.
 *
 * `--quick`: the main rows, small. `--rows name,name`: only these. `--runs n`: of each row, 3 by default. `--scale x`: does x of what a
 * row does. `--profile folder`: a CPU profile of each process. `--control`: the receiver forgets a receipt, so that every row that
 * counts them must fail.
 */
import { parseArgs } from 'node:util'
import { loadEnvFile, readConfig } from '../../src/config.ts'
import { print, reportsOf, write } from './bench-report.ts'
import type { Result } from './bench-result.ts'
import { ROWS } from './bench-rows.ts'
import { BenchWorld } from './bench-world.ts'
import { FULL, QUICK, type Sizes } from './sizes.ts'

const DEFAULT_RUNS = 3

function scaled(sizes: Sizes, scale: number): Sizes {
  const part = (size: number) => Math.max(1, Math.round(size * scale))
  return {
    deliveries: 50 * part(sizes.deliveries / 50),
    leads: part(sizes.leads),
    warmUpLeads: sizes.warmUpLeads,
    listCalls: part(sizes.listCalls),
    latencySeconds: part(sizes.latencySeconds),
  }
}

async function main(): Promise<void> {
  const { values: options } = parseArgs({
    options: {
      quick: { type: 'boolean', default: false },
      rows: { type: 'string' },
      runs: { type: 'string' },
      scale: { type: 'string' },
      profile: { type: 'string' },
      control: { type: 'boolean', default: false },
    },
  })
  loadEnvFile()
  const { dataDir } = readConfig()
  const names = options.rows?.split(',') ?? Object.keys(ROWS).filter((name) => !options.quick || ROWS[name]!.inQuick)
  const unknown = names.find((name) => !ROWS[name])
  if (unknown) throw new Error(`no row ${unknown}; there are ${Object.keys(ROWS).join(', ')}`)
  const sizes = scaled(options.quick ? QUICK : FULL, Number(options.scale ?? 1))
  const results: Result[][] = []
  const world = await BenchWorld.open(options.profile)
  world.forgets = options.control
  try {
    // All rows in turn, again and again: a slow minute of the machine falls on every row alike.
    for (let run = 1; run <= Number(options.runs ?? DEFAULT_RUNS); run++) {
      for (const name of names) {
        process.stderr.write(`bench: ${name}, run ${run} …\n`)
        results.push(await ROWS[name]!.run(world, sizes))
      }
    }
  } finally {
    await world.close()
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
