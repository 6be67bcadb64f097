/**
 * The daemon's process: config -> database -> daemon; SIGTERM: stop claiming, drain, exit. No logic.
 */
import './agenda-debug.ts'
import { connectDatabase, isConnectionFault } from '../db/connection.ts'
import { DatabaseClock } from '../src/clock.ts'
import { ConfigError, loadEnvFile, readConfig } from '../src/config.ts'
import { endOnCrash } from '../src/crash-line.ts'
import { reachDatabase, StartRefused } from '../src/database-start.ts'
import { boundHeapGrowth } from '../src/heap-growth.ts'
import { createLogger, errorFields } from '../src/logger.ts'
import { createProcessMetrics, ProcessCounts } from '../src/metrics.ts'
import { describePortFault, isPortFault } from '../src/port-fault.ts'
import { onStopRequest } from '../src/stop-request.ts'
import { startTracing } from '../src/tracing.ts'
import { VERSION } from '../src/version.ts'
import { startDaemon } from './daemon.ts'

/** Attempts in flight end within 12 s; whatever hangs after that is tried again by the next daemon. */
const STOP_WITHIN_MS = 15_000
/** A backlog over hundreds of webhooks takes it further; what it once had, the C library keeps. */
const LARGE_FROM_MB = 200

function fail(message: string): never {
  process.stderr.write(`daemon: ${message}\n`)
  process.exit(1)
}

async function main(): Promise<void> {
  loadEnvFile()
  const config = readConfig()
  const log = createLogger('daemon', config.logLevel)
  endOnCrash(log)
  boundHeapGrowth({ largeFromMb: LARGE_FROM_MB, growth: { busy: 0, tight: 60 } })
  const database = connectDatabase(config.mysqlDaemonUrl)
  const clock = new DatabaseClock()
  const counts = new ProcessCounts()
  const { mysqlDaemonUrl: mysqlUrl } = config
  const setting = mysqlUrl === config.mysqlUrl ? 'MYSQL_URL' : 'MYSQL_DAEMON_URL'
  await reachDatabase({ database, mysqlUrl, setting, config, clock, counts, logger: log })
  const tracing = await startTracing(config.tracing, { name: 'lis-daemon', version: VERSION }, (error) =>
    log.warn('traces.not_sent', errorFields(error)),
  )
  const daemon = await startDaemon({
    config,
    database,
    clock,
    log,
    version: VERSION,
    metrics: createProcessMetrics(counts),
    tracing,
  }).catch((error) => {
    if (!isPortFault(error)) throw error
    const { daemonHost: host, daemonPort: port } = config
    return fail(describePortFault(error, { host, port, setting: 'DAEMON_PORT', hostSetting: 'DAEMON_HOST' }))
  })
  process.stdout.write(`listening ${daemon.port}\n`)
  for (const reason of config.misspelt) log.warn('setting.unknown', { reason })
  if (config.loopbackOpenedByDefault)
    log.info('deliveries.loopback_open', { reason: 'DELIVERY_ALLOW_CIDRS is not set' })

  let stopping = false
  const stop = (why: string) => {
    if (stopping) return
    stopping = true
    log.info('daemon.stopping', { reason: why })
    setTimeout(() => {
      log.warn('daemon.stop_timed_out', { durationMs: STOP_WITHIN_MS, ...daemon.unfinished() })
      process.exit(1)
    }, STOP_WITHIN_MS).unref()
    daemon.stop().then(
      // Agenda's timers are never cleared: the process has to be ended.
      async () => {
        await tracing?.stop()
        await database.close().finally(() => process.exit(0))
      },
      (error) => {
        log.error('daemon.stop_failed', errorFields(error))
        process.exit(1)
      },
    )
  }
  onStopRequest(stop)
}

main().catch((error: Error) => {
  if (error instanceof ConfigError || error instanceof StartRefused) fail(error.message)
  if (isConnectionFault(error))
    fail('the database does not answer: start it, or set MYSQL_URL (`make run` starts a private one)')
  fail(error.stack ?? error.message)
})
