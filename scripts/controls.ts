/**
 * `make controls`: switches each of nine guards off in a copy of the code, some of them in two ways, and expects the test
 * that it is shown by to turn red.
 *
 * CONTROLS=3,7 tries only these.
 */
import { runBreakages } from './broken-copies.ts'
import { CONTROLS } from './controls-list.ts'

runBreakages({
  title: 'controls',
  breakages: CONTROLS,
  wanted: process.env.CONTROLS?.split(',').map(Number),
  found: 'turned red',
}).then(
  (allRed) => process.exit(allRed ? 0 : 1),
  (error: Error) => {
    process.stderr.write(`controls: ${error.message}\n`)
    process.exit(1)
  },
)
