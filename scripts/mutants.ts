/**
 * `make mutants`: breaks the life cycle in a copy of the code, one fault at a time, and expects its tests to turn red. Ends
 * with 0 only when each fault is found.
 *
 * MUTANTS=3,7 tries only these.
 */
import { runBreakages } from './broken-copies.ts'
import { MUTANTS } from './mutants-list.ts'

runBreakages({
  title: 'mutants',
  breakages: MUTANTS,
  wanted: process.env.MUTANTS?.split(',').map(Number),
  found: 'killed',
  // A few histories of the model test are enough to meet these faults; which ones is not left to chance.
  env: { MODEL_RUNS: '20', MODEL_SEED: '7', MODEL_SHRINK: '0' },
}).then(
  (allKilled) => process.exit(allKilled ? 0 : 1),
  (error: Error) => {
    process.stderr.write(`mutants: ${error.message}\n`)
    process.exit(1)
  },
)
