/**
 * A test of the suite in another size: its sizes are settings, and `make` names them. Prints what the test prints, and ends with 1
 * when it is red.
 */
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { onStopRequest } from '../src/stop-request.ts'

export interface Size {
  /** Setting of the test. */
  setting: string
  /** Left out: the test's own. */
  value: number | undefined
  /** With less the test shows nothing. */
  least: number
  most: number
}

export interface SizedTests {
  /** Begins each line. */
  title: string
  files: string[]
  /** By the option that sets it. */
  sizes: Record<string, Size>
}

const ROOT = join(import.meta.dirname, '..')
const SEED_MOST = 2 ** 31 - 1

/** With `--seed`, by which a run is repeated. */
export function runSizedTests(tests: SizedTests): void {
  try {
    const sizes = readSizes(tests)
    const vitest = join(ROOT, 'node_modules', 'vitest', 'vitest.mjs')
    const args = [vitest, 'run', '--config', 'test/vitest.config.ts', ...tests.files, '--disable-console-intercept']
    const child = spawn(process.execPath, args, { cwd: ROOT, env: { ...process.env, ...sizes }, stdio: 'inherit' })
    // It ends its own database.
    onStopRequest(() => void child.kill('SIGTERM'))
    child.on('close', (code) => process.exit(code === 0 ? 0 : 1))
  } catch (error) {
    process.stderr.write(`${tests.title}: ${(error as Error).message}\n`)
    process.exit(2)
  }
}

function readSizes({ title, sizes }: SizedTests): Record<string, string> {
  const options = Object.fromEntries(Object.keys(sizes).map((name) => [name, { type: 'string' as const }]))
  const { values } = parseArgs({ options })
  const settings: Record<string, string> = {}
  const said: string[] = []
  for (const [name, { setting, value, least, most }] of Object.entries(sizes)) {
    const given = values[name] === undefined ? value : Number(values[name])
    if (given === undefined) continue
    if (!Number.isSafeInteger(given) || given < least || given > most) {
      throw new Error(`--${name} is ${values[name]}: a whole number from ${least} to ${most} is meant`)
    }
    settings[setting] = String(given)
    said.push(`--${name} ${given}`)
  }
  console.log(`${title}: ${said.join(' ')}`)
  return settings
}

/** @param setting that repeats a run; one that is chosen here is printed */
export function seedSize(setting: string): Size {
  return { setting, value: 1 + Math.floor(Math.random() * SEED_MOST), least: 1, most: SEED_MOST }
}
