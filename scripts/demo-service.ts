/**
 * A service of the demo's own, with periods that nobody has to wait a day for: API and daemon as they are, on a database that
 * is made for it and dropped afterwards. Not on the running service's: its daemon goes by the periods of its own settings.
 */
import { createHash } from 'node:crypto'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { hostname, tmpdir } from 'node:os'
import { join } from 'node:path'
import { escapeId } from 'mysql2'
import { createConnection } from 'mysql2/promise'
import { connectDatabase, driverOptions } from '../db/connection.ts'
import { migrate, MigrationFault } from '../db/migrate.ts'
import type { DemoData } from '../db/seeds/demo-data.ts'
import type { Config } from '../src/config.ts'
import { createLogger } from '../src/logger.ts'
import { prepareDemoData } from './demo-file.ts'
import type { DevTls } from './dev-tls.ts'
import { startLocalDatabase } from './local-database.ts'
import { urlOf } from './ports.ts'
import { identify } from './processes.ts'
import { startService } from './service-process.ts'

const ROOT = join(import.meta.dirname, '..')
const HOST = '127.0.0.1'

export interface DemoService {
  baseUrl: string
  /** One JSON object a line for each mail that was sent. */
  mailFile: string
  demo: DemoData
  /** Ends everything that was started, and leaves nothing behind. */
  stop(): Promise<void>
}

/** @param settings on top of the ones that keep it apart from the running service */
export async function startDemoService(
  config: Config,
  tls: DevTls,
  settings: Record<string, string>,
): Promise<DemoService> {
  const dataDir = mkdtempSync(join(tmpdir(), 'lis-demo-'))
  const cleanups: (() => unknown)[] = [() => rmSync(dataDir, { recursive: true, force: true })]
  const stopAll = async () => {
    for (const cleanup of cleanups.toReversed()) await cleanup()
  }
  let stopping: Promise<void> | undefined
  // A signal and the end of the chapter may both ask for it.
  const stop = () => (stopping ??= stopAll())
  try {
    mkdirSync(join(dataDir, 'logs'))
    const { mysqlUrl, drop } = await makeDatabase(config.mysqlMigrateUrl, dataDir)
    cleanups.push(drop)
    const demo = await loadDemo(mysqlUrl, dataDir)
    const env = {
      // Only what a process needs anyway: a setting of the running service (a gateway, a port) would be shared with it.
      ...Object.fromEntries(['PATH', 'HOME', 'LANG', 'TMPDIR'].map((name) => [name, process.env[name]])),
      ...{ NODE_ENV: 'development', DATA_DIR: dataDir, HOST, PORT: '0', DAEMON_PORT: '0', MYSQL_URL: mysqlUrl },
      ...{ DELIVERY_CA_FILE: tls.caFile, DELIVERY_ALLOW_CIDRS: '127.0.0.0/8' },
      ...settings,
    }
    const api = startService('the API', join(ROOT, 'src', 'server.ts'), env, join(dataDir, 'logs', 'api.log'))
    const daemon = startService('the daemon', join(ROOT, 'daemon', 'main.ts'), env, join(dataDir, 'logs', 'daemon.log'))
    cleanups.push(() => Promise.all([api.stop(), daemon.stop()]))
    const [apiPort, daemonPort] = await Promise.all([api.listening(), daemon.listening()])
    const baseUrl = urlOf(HOST, apiPort)
    await Promise.all([api.ready(baseUrl), daemon.ready(urlOf(HOST, daemonPort))])
    return { baseUrl, mailFile: join(dataDir, 'outbox', 'mails.ndjson'), demo, stop }
  } catch (error) {
    await stop()
    throw error
  }
}

async function loadDemo(mysqlUrl: string, dataDir: string): Promise<DemoData> {
  const database = connectDatabase(mysqlUrl, 1)
  try {
    return await prepareDemoData(database, dataDir)
  } finally {
    await database.close()
  }
}

/** So that what is left of other machines' demos, or has such a name for another reason, is nobody's to remove here. */
const MACHINE = createHash('sha256').update(hostname()).digest('hex').slice(0, 8)

/** On the running service's server where its user may make one; else on a server of its own. */
async function makeDatabase(serviceUrl: string, dataDir: string): Promise<{ mysqlUrl: string; drop(): Promise<void> }> {
  const url = new URL(serviceUrl)
  const prefix = `${decodeURIComponent(url.pathname.slice(1))}_demo_${MACHINE}_`
  url.pathname = `/${prefix}${process.pid}`
  const log = createLogger('migrate', 'warn')
  try {
    await dropLeftovers(serviceUrl, prefix)
    await migrate(url.href, log)
    return {
      mysqlUrl: url.href,
      drop: () => onServer(serviceUrl, `DROP DATABASE IF EXISTS ${escapeId(`${prefix}${process.pid}`, true)}`),
    }
  } catch (error) {
    if (!(error instanceof MigrationFault)) throw error
    console.log(`    (a database server of its own, since one can't be made there: ${error.message})`)
  }
  const onProgress = (line: string) => console.log(`    (${line})`)
  const local = await startLocalDatabase({ dataDir, redoLogMb: 32, bufferPoolMb: 64, onProgress })
  await migrate(local.mysqlUrl, log)
  return { mysqlUrl: local.mysqlUrl, drop: local.stop }
}

/** Of demos that were killed. */
async function dropLeftovers(serviceUrl: string, prefix: string): Promise<void> {
  for (const name of await databaseNames(serviceUrl)) {
    const pid = name.startsWith(prefix) ? /^[1-9][0-9]*$/.exec(name.slice(prefix.length))?.[0] : undefined
    if (pid !== undefined && !identify(Number(pid)))
      await onServer(serviceUrl, `DROP DATABASE IF EXISTS ${escapeId(name, true)}`)
  }
}

async function databaseNames(serviceUrl: string): Promise<string[]> {
  const connection = await createConnection({ ...driverOptions(serviceUrl), database: undefined })
  try {
    const [rows] = await connection.query('SHOW DATABASES')
    return (rows as Record<string, string>[]).map((row) => Object.values(row)[0]!)
  } finally {
    await connection.end()
  }
}

async function onServer(serviceUrl: string, sql: string): Promise<void> {
  const connection = await createConnection({ ...driverOptions(serviceUrl), database: undefined })
  try {
    await connection.query(sql)
  } finally {
    await connection.end()
  }
}
