/**
 * `make run`: everything on one machine, in the foreground. Starts in order, stops in the opposite order, leaves nothing
 * running behind; a second start on the same data keeps everything.
 */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { connectDatabase } from '../db/connection.ts'
import { migrate, MigrationFault } from '../db/migrate.ts'
import type { DemoData } from '../db/seeds/demo-data.ts'
import { processClock } from '../src/clock.ts'
import { ConfigError, loadEnvFile, migrateSetting, readConfig, type Config } from '../src/config.ts'
import { createLogger } from '../src/logger.ts'
import { makeFolder } from '../src/make-folder.ts'
import { onStopRequest } from '../src/stop-request.ts'
import { prepareDemoData, writeDemoFile } from './demo-file.ts'
import { makeSureOfDevTls } from './dev-tls.ts'
import { buildReference } from './docs-build.ts'
import { superviseLocalDatabase } from './local-database-supervisor.ts'
import { refuseTakenPorts, urlOf } from './ports.ts'
import { StartFault } from './processes.ts'
import { acquireRunLock } from './run-lock.ts'
import { startService } from './service-process.ts'

const ROOT = join(import.meta.dirname, '..')

/** Not a fault: somebody asked for the end. */
class Stopped extends Error {}

interface Run {
  /** Undone in the opposite order. */
  cleanups: (() => unknown)[]
  /** Rejects as soon as the end is asked for; the work itself may go on until its cleanup. */
  unlessStopped<T>(work: Promise<T>): Promise<T>
  /** Ends the run with this fault. */
  fail(fault: Error): void
}

function say(line: string): void {
  console.log(`run: ${line}`)
}

/** @returns the exit code */
async function main(): Promise<number> {
  // A reader of our output that goes away must not take the database and the rest down without an orderly stop.
  process.stdout.on('error', () => {})
  process.stderr.on('error', () => {})

  const run: Run = { cleanups: [], unlessStopped: (work) => Promise.race([work, end]), fail: () => {} }
  const end = new Promise<never>((_, reject) => {
    onStopRequest((why) => reject(new Stopped(why)))
    run.fail = reject
  })
  end.catch(() => {})
  try {
    loadEnvFile()
    const config = readConfig()
    await startAll(config, run)
    return await end
  } catch (error) {
    if (error instanceof Stopped) {
      say(`${error.message}: stopping …`)
      return 0
    }
    const isExpected = error instanceof ConfigError || error instanceof StartFault || error instanceof MigrationFault
    const fault = isExpected ? error.message : describeFolderFault(error as NodeJS.ErrnoException)
    console.error(fault === undefined ? error : `run: ${fault}`)
    return 1
  } finally {
    for (const cleanup of run.cleanups.reverse()) {
      try {
        await cleanup()
      } catch (error) {
        // The others are still to be stopped.
        console.error(error)
      }
    }
  }
}

/** What the system says of a folder or file that can't be made. */
const FOLDER_CODES = ['EACCES', 'EPERM', 'EROFS', 'ENOTDIR', 'EISDIR', 'EEXIST', 'ENOENT']

/** @returns undefined for what has nothing to do with where the data is */
function describeFolderFault({ code = '', path, syscall }: NodeJS.ErrnoException): string | undefined {
  if (code === 'ENOSPC') return 'the disk that holds DATA_DIR is full: free some space and start again'
  if (!path || syscall?.startsWith('spawn') || !FOLDER_CODES.includes(code)) return undefined
  return `DATA_DIR: ${path} can't be written (${code}): see to it, or choose another folder`
}

async function startAll(config: Config, run: Run): Promise<void> {
  const { dataDir } = config
  // Its owner's alone: until it is told otherwise the server lets everybody into its socket.
  if (!existsSync(dataDir)) makeFolder(dataDir, 0o700)
  makeFolder(join(dataDir, 'logs'))
  const lock = await acquireRunLock(dataDir, say)
  run.cleanups.push(lock.release)
  await refuseTakenPorts(config)

  // Beside the rest: it takes a second the first time, and nothing that starts needs it.
  const stopBuilding = new AbortController()
  const reference = buildReference(dataDir, stopBuilding.signal).catch((error) => {
    if (!stopBuilding.signal.aborted) say(`there is no reference at /docs: ${error.message}`)
  })
  run.cleanups.push(() => {
    stopBuilding.abort()
    return reference
  })
  if (!config.production) await makeSureOfDevTls(dataDir, processClock.nowMs())
  for (const sentence of config.misspelt) say(sentence)
  if (config.loopbackOpenedByDefault) {
    say('deliveries may go to loopback, because DELIVERY_ALLOW_CIDRS is not set (set it to empty to forbid it)')
  }
  if (config.privateDatabase) {
    // Awaited to the end also when a signal comes: only then is there something that can be stopped.
    const database = await superviseLocalDatabase(dataDir, say, run.fail)
    run.cleanups.push(database.stop)
  }
  const log = createLogger('migrate', 'warn')
  await run.unlessStopped(migrate(config.mysqlMigrateUrl, log, say, migrateSetting(config)))
  const demoData = config.production ? undefined : await run.unlessStopped(loadDemo(config))
  await startServices(config, run, lock.addChild, demoData, reference)
}

async function loadDemo(config: Config): Promise<DemoData> {
  const database = connectDatabase(config.mysqlUrl, 1)
  try {
    return await prepareDemoData(database, config.dataDir)
  } finally {
    await database.close()
  }
}

async function startServices(
  config: Config,
  run: Run,
  addChild: (pid: number) => void,
  demoData: DemoData | undefined,
  reference: Promise<unknown>,
): Promise<void> {
  const logs = join(config.dataDir, 'logs')
  const env = {
    ...process.env,
    DATA_DIR: config.dataDir,
    MYSQL_URL: config.mysqlUrl,
    MYSQL_MIGRATE_URL: config.mysqlMigrateUrl,
    MYSQL_DAEMON_URL: config.mysqlDaemonUrl,
  }
  say('starting the API and the daemon …')
  const api = startService('the API', join(ROOT, 'src', 'server.ts'), env, join(logs, 'api.log'))
  const daemon = startService('the daemon', join(ROOT, 'daemon', 'main.ts'), env, join(logs, 'daemon.log'))
  run.cleanups.push(() => Promise.all([api.stop(), daemon.stop()]))
  for (const service of [api, daemon]) addChild(service.pid)

  const [apiPort, daemonPort] = await run.unlessStopped(Promise.all([api.listening(), daemon.listening()]))
  const apiUrl = urlOf(config.host, apiPort)
  const daemonUrl = urlOf(config.daemonHost, daemonPort)
  await run.unlessStopped(Promise.all([api.ready(apiUrl), daemon.ready(daemonUrl)]))
  for (const service of [api, daemon]) {
    void service.ended.then((how) => run.fail(service.fault(`ended unexpectedly (${how})`)))
  }
  await run.unlessStopped(reference)
  const baseUrl = config.publicBaseUrl ?? apiUrl
  // An OPERATOR_PORT of 0 is known to the API alone.
  const operatorUrl =
    config.operatorPort === undefined ? apiUrl : config.operatorPort && urlOf(config.host, config.operatorPort)
  const addresses = operatorUrl && operatorUrl !== baseUrl ? { baseUrl, operatorUrl } : { baseUrl }
  const demo = demoData ? ` demo=${writeDemoFile(config.dataDir, addresses, demoData)}` : ''
  console.log(`ready: ${baseUrl} daemon=${daemonUrl}${demo} logs=${logs}`)
}

main().then(
  (code) => process.exit(code),
  (error) => {
    console.error(error)
    process.exit(1)
  },
)
