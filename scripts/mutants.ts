/**
 * `make mutants`: breaks the code in a copy of it, one fault at a time, and expects its tests to turn red. Ends with 0 only when
 * each fault is found.
 *
 *     node scripts/mutants.ts [--list life-cycle|rules] [--only 3,7]
 */
import { parseArgs } from 'node:util'
import { runBreakages, type Breakage } from './broken-copies.ts'
import { MUTANTS } from './mutants-list.ts'
import { RULE_MUTANTS } from './mutants-of-rules.ts'

const LISTS: Record<string, Breakage[]> = { 'life-cycle': MUTANTS, rules: RULE_MUTANTS }

function readChoice(): { breakages: Breakage[]; wanted: number[] | undefined } {
  const { values } = parseArgs({
    options: { list: { type: 'string', default: 'life-cycle' }, only: { type: 'string' } },
  })
  const breakages = Object.hasOwn(LISTS, values.list) ? LISTS[values.list]! : undefined
  if (!breakages) throw new Error(`--list is ${values.list}: ${Object.keys(LISTS).join(' or ')} is meant`)
  const wanted = values.only?.split(',').map(Number)
  if (wanted?.some((n) => !Number.isInteger(n) || n < 1 || n > breakages.length)) {
    throw new Error(`--only is ${values.only}: numbers from 1 to ${breakages.length} are meant, such as 3,7`)
  }
  return { breakages, wanted }
}

async function main(): Promise<boolean> {
  return runBreakages({
    title: 'mutants',
    ...readChoice(),
    found: 'killed',
    // A few histories of the model test are enough to meet these faults; which ones is not left to chance.
    env: { MODEL_RUNS: '20', MODEL_SEED: '7', MODEL_SHRINK: '0' },
  })
}

main().then(
  (allKilled) => process.exit(allKilled ? 0 : 1),
  (error: Error) => {
    process.stderr.write(`mutants: ${error.message}\n`)
    process.exit(1)
  },
)
