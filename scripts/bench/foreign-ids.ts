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

const ROOT = join(import.meta.dirname, '..', '..')
const FIELD_LIMIT_MS = 600_000

const { values } = parseArgs({
  options: { n: { type: 'string', default: '60' }, control: { type: 'string', default: '0' } },
})
// An account of the tests may make 500 CRM calls.
if (!/^[1-9][0-9]{0,2}$/.test(values.n) || Number(values.n) > 200) {
  throw new Error('--n must be a whole number from 1 to 200')
}
if (!/^[0-9]{1,3}$/.test(values.control)) throw new Error('--control must be a whole number of milliseconds up to 999')

const { status } = spawnSync(
  'vitest',
  ['run', '--config', 'test/vitest.config.ts', `--testTimeout=${FIELD_LIMIT_MS}`, 'test/tenancy/tenancy.test.ts'],
  { cwd: ROOT, stdio: 'inherit', env: { ...process.env, ID_SAMPLES: values.n, ID_CONTROL_MS: values.control } },
)
console.log(`bench-foreign-ids: ${status === 0 ? 'no id is told apart' : 'NOT as it must be'}`)
process.exit(status === 0 ? 0 : 1)
