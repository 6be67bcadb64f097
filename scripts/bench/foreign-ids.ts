/**
 * `make bench-foreign-ids`: can anybody tell by the time of the answer whether an id is another account's or nobody's? Every field
 * of the client contract that carries an id, in every account mode, is asked for both in turns, and the medians are compared. Exit 1
 * where they differ by more than 5 ms, twice, or where the answers differ in anything else.
 *
 * It is `test/tenancy`, which asks each once, with many calls.
 *
 * `--n count`: of each kind and field, 60 by default. `--control ms`: another account's answers are held up for so long, and it must tell.
 */
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { usableArguments, wholeNumber } from '../whole-number.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const FIELD_LIMIT_MS = 600_000

const { values } = parseArgs({
  options: { n: { type: 'string', default: '60' }, control: { type: 'string', default: '0' } },
})
// An account of the tests may make 500 CRM calls.
usableArguments('bench-foreign-ids', () => wholeNumber('n', values.n, 1, 200))
usableArguments('bench-foreign-ids', () => wholeNumber('control', values.control, 0, 999))

const { status } = spawnSync(
  'vitest',
  ['run', '--config', 'test/vitest.config.ts', `--testTimeout=${FIELD_LIMIT_MS}`, 'test/tenancy/tenancy.test.ts'],
  { cwd: ROOT, stdio: 'inherit', env: { ...process.env, ID_SAMPLES: values.n, ID_CONTROL_MS: values.control } },
)
console.log(`bench-foreign-ids: ${status === 0 ? 'no id is told apart' : 'NOT as it must be'}`)
process.exit(status === 0 ? 0 : 1)
