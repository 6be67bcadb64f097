/**
 * Renders both contracts to one static page each, with Redoc. The page holds script, style and contract, so that it works
 * without internet.
 */
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { basename, join } from 'node:path'
import { referenceDirOf, referencePageOf, type ContractName } from '../src/reference-pages.ts'
import { StartFault } from './processes.ts'

const ROOT = join(import.meta.dirname, '..')
const REDOCLY = join(ROOT, 'node_modules', '@redocly', 'cli')
const KEPT = join(ROOT, 'node_modules', '.cache', 'reference')

/**
 * Builds what is missing or made of another contract or by another version of the tool; a second call is a matter of
 * milliseconds.
 * @returns the pages that were built
 * @param signal ends what is being built
 * @throws StartFault when the tool is not installed, fails or is ended
 */
export async function buildReference(dataDir: string, signal?: AbortSignal): Promise<string[]> {
  const referenceDir = referenceDirOf(dataDir)
  const built = await Promise.all(
    (['client', 'operator'] as const).map((contract) => buildPage(referenceDir, contract, signal)),
  )
  return built.filter((page) => page !== undefined)
}

async function buildPage(
  referenceDir: string,
  contract: ContractName,
  signal?: AbortSignal,
): Promise<string | undefined> {
  const definition = join(ROOT, 'openapi', `${contract}.yaml`)
  if (!existsSync(REDOCLY))
    throw new StartFault('the pages at /docs are built with @redocly/cli, a development package')
  const page = referencePageOf(referenceDir, contract)
  const stamp = `${page}.made-of`
  const madeOf = fingerprint(definition)
  if (existsSync(page) && existsSync(stamp) && readFileSync(stamp, 'utf8') === madeOf) return undefined
  mkdirSync(referenceDir, { recursive: true })
  const draft = `${page}.${process.pid}`
  try {
    const kept = join(KEPT, `${contract}-${madeOf}.html`)
    if (existsSync(kept)) copyFileSync(kept, draft)
    else {
      await render(definition, draft, signal)
      keep(draft, kept)
    }
    // The stamp after the page: a crash between the two makes the page once more.
    renameSync(draft, page)
    writeFileSync(stamp, madeOf)
  } finally {
    rmSync(draft, { force: true })
  }
  return page
}

/** For the next data folder of this checkout. One that can't be written, of an installation for production, keeps nothing. */
function keep(page: string, kept: string): void {
  const draft = `${kept}.${process.pid}`
  try {
    mkdirSync(KEPT, { recursive: true })
    const contract = basename(kept).split('-')[0]!
    for (const older of readdirSync(KEPT)) if (older.startsWith(`${contract}-`)) rmSync(join(KEPT, older))
    copyFileSync(page, draft)
    renameSync(draft, kept)
  } catch {
    rmSync(draft, { force: true })
  }
}

function fingerprint(definition: string): string {
  const tool = readFileSync(join(REDOCLY, 'package.json'))
  return createHash('sha256').update(tool).update(readFileSync(definition)).digest('hex')
}

async function render(definition: string, output: string, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted()
  const args = [join(REDOCLY, 'bin', 'cli.js'), 'build-docs', definition, '--inlineBundle', '--output', output]
  const child = spawn(process.execPath, args, {
    // Telemetry and the look for a newer version would need internet.
    env: { ...process.env, REDOCLY_TELEMETRY: 'off', REDOCLY_SUPPRESS_UPDATE_NOTICE: 'true' },
    stdio: ['ignore', 'ignore', 'pipe'],
    // Ctrl-C is for whoever waits for it, who ends it then.
    detached: true,
  })
  const end = () => child.kill('SIGKILL')
  signal?.addEventListener('abort', end)
  let said = ''
  child.stderr.on('data', (chunk) => (said += chunk))
  const code = await new Promise<number | null>((resolve) => {
    child.on('error', () => resolve(null))
    child.on('close', resolve)
  })
  signal?.removeEventListener('abort', end)
  signal?.throwIfAborted()
  if (code !== 0 || !existsSync(output)) throw new StartFault(`${definition} could not be rendered:\n${said.trim()}`)
}
