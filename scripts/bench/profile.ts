/**
 * `make profile`: CPU profiles of the API and the daemon while leads are pushed and delivered, as `.cpuprofile` (the developer tools
 * of a browser open it) and as a flame graph in one HTML page each, in `DATA_DIR/profile`.
 *
 * `--leads n`: 20,000 by default.
 */
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { loadEnvFile, readConfig } from '../../src/config.ts'
import { BenchWorld } from './bench-world.ts'
import { flameGraphPage, frameTreeOf, heaviest } from './flame-graph.ts'
import { rateOf } from './load.ts'
import { withService } from './path-bench.ts'
import { untilRecorded } from './receipts.ts'

const CONNECTIONS = 16
const SHOWN = 15

async function main(): Promise<void> {
  const { values: options } = parseArgs({ options: { leads: { type: 'string', default: '20000' } } })
  const leads = Number(options.leads)
  loadEnvFile()
  const folder = join(readConfig().dataDir, 'profile')
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder, { recursive: true })
  const world = await BenchWorld.open(folder)
  const pids: Record<string, number> = {}
  try {
    await withService(world, leads, async (load, baseUrl, { api, daemon }) => {
      Object.assign(pids, { api, daemon })
      const order = { baseUrls: [baseUrl], what: 'leads' as const, count: leads, connections: CONNECTIONS }
      const result = await load.run(order)
      await untilRecorded(world, leads)
      console.log(`${leads} leads pushed at ${Math.round(rateOf(result, leads))}/s and delivered, while being profiled`)
    })
  } finally {
    await world.close()
  }
  for (const [name, pid] of Object.entries(pids)) {
    const written = readdirSync(folder).find((file) => file.endsWith('.cpuprofile') && file.includes(`.${pid}.`))
    if (!written) throw new Error(`the ${name} left no profile`)
    const file = join(folder, `${name}.cpuprofile`)
    renameSync(join(folder, written), file)
    const root = frameTreeOf(JSON.parse(readFileSync(file, 'utf8')))
    const page = join(folder, `${name}.html`)
    writeFileSync(page, flameGraphPage(`CPU of the ${name}, ${leads} leads`, root))
    console.log(`\n${name}: ${page}, ${file}\n`)
    for (const { name: called, where, share } of heaviest(root, SHOWN)) console.log(`  ${share.toFixed(1).padStart(5)} %  ${called}  ${where}`) // prettier-ignore
  }
}

main().then(
  () => process.exit(0),
  (error: Error) => {
    process.stderr.write(`profile: ${error.stack}\n`)
    process.exit(1)
  },
)
