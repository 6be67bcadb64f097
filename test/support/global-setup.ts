/**
 * Once per run: a database server for all test files. Its own private one, or that of MYSQL_URL.
 */
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import type { TestProject } from 'vitest/node'
import { findOrInstallServer } from '../../scripts/database-server.ts'
import { startLocalDatabase, type LocalDatabase } from '../../scripts/local-database.ts'
import { endProcess, findByArgument, identify } from '../../scripts/processes.ts'
import { dropDatabasesOfRun, prepareTestServer, type TestServer } from './test-server.ts'

declare module 'vitest' {
  interface ProvidedContext {
    testServer: TestServer
  }
}

const FOLDER_PREFIX = 'lis-test-'

let server: TestServer
let local: { database: LocalDatabase; folder: string } | undefined

export async function setup(project: TestProject): Promise<void> {
  const given = process.env.MYSQL_URL
  if (!given) local = await startPrivateServer()
  server = await prepareTestServer(given ?? local!.database.mysqlUrl)
  project.provide('testServer', server)
}

export async function teardown(): Promise<void> {
  if (!local) return dropDatabasesOfRun(server)
  await local.database.stop()
  rmSync(local.folder, { recursive: true, force: true })
}

/** Where the server must be downloaded, once for all folders of all runs. */
async function shareUnpackedServer(): Promise<void> {
  const dataDir = resolve(process.env.DATA_DIR ?? '.data')
  mkdirSync(dataDir, { recursive: true })
  const { unpacked } = await findOrInstallServer(dataDir, (line) => console.log(`test: ${line}`))
  // The test files are processes of their own and inherit it.
  if (unpacked) process.env.MARIADB_HOME = resolve(unpacked.baseDir, '..')
}

async function startPrivateServer(): Promise<{ database: LocalDatabase; folder: string }> {
  await removeLeftovers()
  await shareUnpackedServer()
  const folder = mkdtempSync(join(tmpdir(), `${FOLDER_PREFIX}${process.pid}-`))
  const database = await startLocalDatabase({
    dataDir: folder,
    redoLogMb: 64,
    onProgress: (line) => console.log(`test: ${line}`),
  })
  // A run that is interrupted does not get as far as the teardown.
  process.on('exit', () => {
    if (identify(database.pid)) process.kill(database.pid, 'SIGKILL')
    rmSync(folder, { recursive: true, force: true })
  })
  return { database, folder }
}

/** Of runs that were killed: their server ends with them where the kernel can tell it to, their folder stays. */
async function removeLeftovers(): Promise<void> {
  for (const name of readdirSync(tmpdir())) {
    const pid = new RegExp(`^${FOLDER_PREFIX}(\\d+)-`).exec(name)?.[1]
    if (!pid || identify(Number(pid))) continue
    const folder = join(tmpdir(), name)
    for (const survivor of findByArgument(`--datadir=${join(folder, 'mysql')}`)) await endProcess(survivor, 5000)
    rmSync(folder, { recursive: true, force: true })
  }
}
