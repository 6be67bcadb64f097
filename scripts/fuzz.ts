/**
 * Generated requests in any number: `node scripts/fuzz.ts --n 300 --seed 7 [--operation createEntry]`. Each operation of both
 * contracts gets `n` valid and `n` faulty ones, on a database of its own. Exit code 1 when any answer is not as it must be.
 */
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { parseArgs } from 'node:util'

const ROOT = join(import.meta.dirname, '..')

const { values } = parseArgs({
  options: {
    n: { type: 'string', default: '300' },
    seed: { type: 'string' },
    operation: { type: 'string' },
  },
})
if (!/^[1-9][0-9]{0,5}$/.test(values.n)) throw new Error('--n must be a whole number from 1 to 999999')

const child = spawn(
  join(ROOT, 'node_modules', '.bin', 'vitest'),
  [
    'run',
    '--config',
    'test/vitest.config.ts',
    'test/fuzz/contract-fuzz.test.ts',
    ...(values.operation === undefined ? [] : ['-t', `${values.operation} `]),
  ],
  {
    cwd: ROOT,
    stdio: 'inherit',
    env: {
      ...process.env,
      FUZZ_RUNS: values.n,
      ...(values.seed === undefined ? {} : { FUZZ_SEED: values.seed }),
    },
  },
)
child.on('exit', (code) => process.exit(code ?? 1))
