/**
 * `make fresh-install`: that the project is whole when no package runs a script at its installation. In a copy of the tree:
 * `npm ci --ignore-scripts`, the compiler, then production's packages alone, and on these schema, API and daemon.
 */
import { execFile } from 'node:child_process'
import { cpSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { promisify } from 'node:util'
import { monotonicMs } from '../../src/clock.ts'
import { startLocalDatabase } from '../local-database.ts'
import { startService, type Service } from '../service-process.ts'

const ROOT = join(import.meta.dirname, '../..')
const LEFT_OUT = new Set(['node_modules', '.git', '.data', '.env'])

const run = promisify(execFile)

async function step(name: string, work: () => Promise<unknown>): Promise<void> {
  const startedAtMs = monotonicMs()
  await work()
  console.log(`${name}: done in ${((monotonicMs() - startedAtMs) / 1000).toFixed(1)} s`)
}

async function serve(code: string, folder: string): Promise<void> {
  const database = await startLocalDatabase({ dataDir: folder, redoLogMb: 64 })
  const env = { PATH: process.env.PATH, MYSQL_URL: database.mysqlUrl, DATA_DIR: folder, PORT: '0', DAEMON_PORT: '0' }
  const services: Service[] = []
  try {
    await step('schema', () => run(process.execPath, [join(code, 'scripts/migrate.ts')], { cwd: code, env }))
    for (const [name, script] of [['the API', 'src/server.ts'], ['the daemon', 'daemon/main.ts']] as const) {
      await step(name, async () => {
        const service = startService(name, join(code, script), env, join(folder, 'service.log'))
        services.push(service)
        await service.ready(`http://127.0.0.1:${await service.listening()}`)
      })
    } // prettier-ignore
  } finally {
    await Promise.all(services.map((service) => service.stop()))
    await database.stop()
  }
}

async function main(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'lis-fresh-'))
  const code = join(folder, 'code')
  const npm = (...args: string[]) => run('npm', [...args, '--ignore-scripts', '--no-audit', '--no-fund'], { cwd: code })
  try {
    cpSync(ROOT, code, { recursive: true, filter: (path) => path === ROOT || !LEFT_OUT.has(basename(path)) })
    await step('npm ci --ignore-scripts', () => npm('ci'))
    await step('tsc', () => run(join(code, 'node_modules/.bin/tsc'), ['--noEmit'], { cwd: code }))
    await step("production's packages alone", () => npm('prune', '--omit=dev'))
    await serve(code, join(folder, 'data'))
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

main().then(
  () => process.exit(0),
  (error: Error & { stdout?: string; stderr?: string }) => {
    process.stderr.write(`fresh-install: ${error.message}\n${error.stdout ?? ''}${error.stderr ?? ''}\n`)
    process.exit(1)
  },
)
