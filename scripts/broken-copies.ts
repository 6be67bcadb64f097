/**
 * Breaks the code in a copy of the tree, one change of text at a time, and expects its tests to turn red: a test that can't
 * fail shows nothing. The tree itself is never written to.
 */
import { spawn } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join, relative } from 'node:path'
import { monotonicMs } from '../src/clock.ts'
import { onStopRequest } from '../src/stop-request.ts'
import { startLocalDatabase } from './local-database.ts'

/** A fault that somebody could make: each edit's text must be found exactly once. */
export interface Breakage {
  name: string
  file: string
  edits: [find: string, replace: string][]
  /** Files of the tests that are to find it. */
  tests: string[]
  /** Of these only the tests whose names match. */
  only?: string
}

export interface BreakageRun {
  /** Begins each line. */
  title: string
  breakages: Breakage[]
  /** Numbers, from 1, of those to try; undefined: all. */
  wanted: number[] | undefined
  /** What a breakage that was found is called in the last line. */
  found: string
  env?: Record<string, string>
}

interface Copy {
  folder: string
  mysqlUrl: string
  env: Record<string, string>
}

type Tests = Pick<Breakage, 'tests' | 'only'>

const ROOT = join(import.meta.dirname, '..')
/** Not part of the code; a folder of packages is linked instead. */
const LEFT_OUT = new Set(['node_modules', '.git', '.data', '.env'])

/** @returns whether the tests found every one */
export async function runBreakages(run: BreakageRun): Promise<boolean> {
  const folder = mkdtempSync(join(tmpdir(), `lis-${run.title}-`))
  const code = join(folder, 'code')
  let database: Awaited<ReturnType<typeof startLocalDatabase>> | undefined
  const cleanUp = async () => {
    await database?.stop()
    // The link first: nothing must ever walk through it.
    try {
      unlinkSync(join(code, 'node_modules'))
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
    }
    rmSync(folder, { recursive: true, force: true })
  }
  onStopRequest(() => void cleanUp().finally(() => process.exit(1)))
  try {
    makeCopy(code)
    const source = relative(process.cwd(), ROOT) || 'this folder'
    console.log(`${run.title}: ${run.breakages.length} faults, each in a copy of ${source}`)
    database = await startLocalDatabase({ dataDir: join(folder, 'data'), redoLogMb: 64 })
    return await tryAll({ folder: code, mysqlUrl: database.mysqlUrl, env: run.env ?? {} }, run)
  } finally {
    await cleanUp()
  }
}

function makeCopy(folder: string): void {
  cpSync(ROOT, folder, { recursive: true, filter: (path) => path === ROOT || !LEFT_OUT.has(basename(path)) })
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'), 'dir')
}

async function tryAll(copy: Copy, { title, breakages, wanted, found }: BreakageRun): Promise<boolean> {
  const chosen = breakages
    .map((breakage, n) => ({ ...breakage, number: n + 1 }))
    .filter(({ number }) => !wanted || wanted.includes(number))
  // That every text is there is seen before the first test runs.
  for (const breakage of chosen) breakCode(copy.folder, breakage)()
  console.log(`${title}: the tests as they are …`)
  for (const tests of togetherWhereWhole(chosen)) {
    const red = await runTests(copy, tests)
    if (red !== undefined) throw new Error(`a test is red before anything is broken: ${red}`)
  }
  let count = 0
  for (const breakage of chosen) {
    const mend = breakCode(copy.folder, breakage)
    const startedAtMs = monotonicMs()
    const failed = await runTests(copy, breakage)
    mend()
    if (failed !== undefined) count += 1
    const took = `${((monotonicMs() - startedAtMs) / 1000).toFixed(0)} s`
    const verdict = failed === undefined ? 'NOT FOUND' : `${found} by: ${failed}`
    console.log(
      `${String(breakage.number).padStart(2)}. ${breakage.name} (${breakage.file}), ${took}\n      ${verdict}`,
    )
  }
  console.log(`\n${count} of ${chosen.length} ${found}`)
  return count === chosen.length
}

/** Whole files run together, once each; a choice of tests in a file runs by itself, and once. */
function togetherWhereWhole(breakages: Breakage[]): Tests[] {
  const whole = new Set(breakages.filter(({ only }) => only === undefined).flatMap(({ tests }) => tests))
  const chosen = new Map<string, Tests>()
  for (const { tests, only } of breakages) if (only !== undefined) chosen.set(`${tests} ${only}`, { tests, only })
  return [...(whole.size > 0 ? [{ tests: [...whole] }] : []), ...chosen.values()]
}

/** @throws when the text to be broken is not there exactly once: the edit would break nothing, or something else */
function breakCode(folder: string, { name, file, edits }: Breakage): () => void {
  const path = join(folder, file)
  const sound = readFileSync(path, 'utf8')
  const broken = edits.reduce((text, [find, replace]) => {
    const count = text.split(find).length - 1
    if (count !== 1) throw new Error(`"${name}": its text is in ${file} ${count} times, not once:\n${find}`)
    return text.replace(find, () => replace)
  }, sound)
  writeFileSync(path, broken)
  return () => writeFileSync(path, sound)
}

/** @returns the first failed test, or undefined when all are green */
async function runTests({ folder, mysqlUrl, env }: Copy, { tests, only }: Tests): Promise<string | undefined> {
  const vitest = join(ROOT, 'node_modules', 'vitest', 'vitest.mjs')
  const choice = only === undefined ? [] : ['--testNamePattern', only]
  const args = [
    'run',
    '--config',
    'test/vitest.config.ts',
    '--bail',
    '1',
    '--reporter',
    'tap-flat',
    ...choice,
    ...tests,
  ]
  const child = spawn(process.execPath, [vitest, ...args], {
    cwd: folder,
    env: { ...process.env, MYSQL_URL: mysqlUrl, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let output = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += chunk))
  const code = await new Promise((resolve) => child.on('close', resolve))
  if (code === 0) {
    // A name that no test has leaves them all out, and they are green.
    if (!/^ok .*# time=/m.test(output)) throw new Error(`none of the tests ran: ${[...tests, ...choice].join(' ')}`)
    return undefined
  }
  const failed = /^not ok \d+ - (.*?)(?: # time=.*)?$/m.exec(output)?.[1]
  // A run that does not get as far as a test has found nothing.
  if (failed === undefined) throw new Error(`the tests could not be run:\n${output.split('\n').slice(-30).join('\n')}`)
  return failed
}
