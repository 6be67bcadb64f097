/**
 * The API process: config -> database -> clock -> app -> listen -> drain on SIGTERM or SIGINT. No logic.
 */
import type { Server } from 'node:http'
import { connectDatabase } from '../db/connection.ts'
import { createApp, type AppDeps } from './app.ts'
import { DatabaseClock } from './clock.ts'
import { ConfigError, loadEnvFile, readConfig, type Config } from './config.ts'
import { endOnCrash } from './crash-line.ts'
import { CRM_CALLS } from './crm/crm-budget-rules.ts'
import { deriveKeys } from './crypto.ts'
import { reachDatabase, StartRefused } from './database-start.ts'
import { startErasures } from './erasure/erasure-runner.ts'
import { DaemonHints } from './events/daemon-hints.ts'
import { boundHeapGrowth } from './heap-growth.ts'
import { createHttpServer, drain, listen, urlOf } from './http-server.ts'
import { createLogger, errorFields } from './logger.ts'
import { createSmsGateway } from './patients/sms-gateway.ts'
import { SmsSender } from './patients/sms-sender.ts'
import { openReportStore } from './reports/report-store.ts'
import { startReportSweep } from './reports/report-sweep.ts'
import { registerBacklog, registerPools, registerReadiness } from './metrics-database.ts'
import { RequestCounts } from './metrics-requests.ts'
import { createProcessMetrics, ProcessCounts } from './metrics.ts'
import { describePortFault, type WantedPort } from './port-fault.ts'
import { createMetricsServer } from './probe-server.ts'
import { Readiness } from './readiness.ts'
import { referenceDirOf } from './reference-pages.ts'
import { onStopRequest } from './stop-request.ts'
import { startTracing } from './tracing.ts'
import { VERSION } from './version.ts'
import { deliveryAddresses } from './webhooks/endpoint-address.ts'

/** Requests that are running when the process is told to stop get this long. */
const DRAIN_LIMIT_MS = 10_000
/** What it is started with is the first of them. */
const HEAP_GROWTH = { busy: 60, tight: 25 }

async function main(): Promise<void> {
  const config = readSettings()
  const logger = createLogger('api', config.logLevel)
  for (const reason of config.misspelt) logger.warn('setting.unknown', { reason })
  endOnCrash(logger)
  boundHeapGrowth({ growth: HEAP_GROWTH })
  const database = connectDatabase(config.mysqlUrl)
  const clock = new DatabaseClock()
  const counts = new ProcessCounts()
  const { mysqlUrl } = config
  await reachDatabase({ database, mysqlUrl, setting: 'MYSQL_URL', config, clock, counts, logger }).catch(refuse)

  const readiness = new Readiness(database.knex)
  await readiness.start()
  const hints = new DaemonHints(database.knex)
  const keys = deriveKeys(config.secretsKey)
  const gateway = createSmsGateway({ url: config.smsGatewayUrl, dataDir: config.dataDir, now: () => clock.now() })
  const smsSender = new SmsSender({ knex: database.knex, clock, keys, logger, gateway })
  smsSender.start()
  const reportStore = openReportStore(config.dataDir, config.reportMaxBytes)
  await reportStore.prepare().catch(({ code }: NodeJS.ErrnoException) => {
    fail(`DATA_DIR: ${config.dataDir} can't be written (${code}): reports are kept there, choose a folder that can`)
  })
  const tracing = await startTracing(config.tracing, { name: 'lis-api', version: VERSION }, (error) =>
    logger.warn('traces.not_sent', errorFields(error)),
  )
  const deps: Omit<AppDeps, 'serves' | 'baseUrl'> = {
    database,
    clock,
    keys,
    logger,
    smsSender,
    reportStore,
    reportMaxBytes: config.reportMaxBytes,
    retention: config,
    readiness,
    referenceDir: referenceDirOf(config.dataDir),
    requests: new RequestCounts(),
    tracing,
    accessTokenTtlSeconds: config.accessTokenTtlSeconds,
    crmCalls: CRM_CALLS,
    addressPolicy: deliveryAddresses(config),
    hint: (kind, eventId) => hints.send(kind, { eventId }),
  }
  const stopReportSweep = startReportSweep({ ...deps, knex: database.knex })
  const servers = await startListeners(config, deps, counts)
  const stopErasures = startErasures({ ...deps, secretsKeyLost: config.secretsKeyLost })

  let isStopping = false
  const stop = async (why: string) => {
    if (isStopping) return
    isStopping = true
    logger.info('api.draining', { reason: why })
    readiness.drain()
    await Promise.all(servers.map((server) => drain(server, DRAIN_LIMIT_MS)))
    hints.close()
    await smsSender.stop()
    await stopReportSweep()
    await stopErasures()
    await tracing?.stop()
    clock.stop()
    await database.close().catch(() => {})
    logger.info('api.stopped', { reason: why })
    process.exit(0)
  }
  onStopRequest((why) => void stop(why))
}

function readSettings(): Config {
  try {
    loadEnvFile()
    return readConfig()
  } catch (error) {
    if (error instanceof ConfigError) fail(error.message)
    throw error
  }
}

async function startListeners(
  config: Config,
  given: Omit<AppDeps, 'serves' | 'baseUrl'>,
  counts: ProcessCounts,
): Promise<Server[]> {
  let publicPort = config.port
  const { reusePort } = config
  const on = { host: config.host, hostSetting: 'HOST' }
  const deps = { ...given, baseUrl: () => config.publicBaseUrl ?? urlOf(config.host, publicPort) }
  const isSplit = config.operatorPort !== undefined
  const publicServer = createHttpServer(await createApp({ ...deps, serves: { client: true, operator: !isSplit } }))
  const servers = [publicServer]
  if (config.operatorPort !== undefined) {
    const operatorServer = createHttpServer(await createApp({ ...deps, serves: { client: false, operator: true } }))
    const port = await bind(operatorServer, { ...on, port: config.operatorPort, setting: 'OPERATOR_PORT' }, reusePort)
    deps.logger.info('api.operator_listening', { host: config.host, port })
    servers.push(operatorServer)
  }
  if (config.metricsPort !== undefined) servers.push(await startMetrics(config, config.metricsPort, deps, counts))
  // Last, and the sign for whoever started us that everything serves.
  publicPort = await bind(publicServer, { ...on, port: config.port, setting: 'PORT' }, reusePort)
  process.stdout.write(`listening ${publicPort}\n`)
  deps.logger.info('api.listening', { host: config.host, port: publicPort, version: VERSION, pid: process.pid })
  return servers
}

/** On loopback unless METRICS_HOST says otherwise, whatever HOST is. */
async function startMetrics(
  config: Config,
  metricsPort: number,
  { requests, database, clock, readiness, logger }: Omit<AppDeps, 'serves'>,
  counts: ProcessCounts,
): Promise<Server> {
  const metrics = createProcessMetrics(counts)
  requests.register(metrics)
  registerReadiness(metrics, () => readiness.fault)
  registerPools(metrics, database)
  // Also here: where every daemon is gone, what waits is seen by those that are left.
  registerBacklog(metrics, database, clock)
  const server = createMetricsServer(metrics, logger)
  const on = { host: config.metricsHost, hostSetting: 'METRICS_HOST' }
  const port = await bind(server, { ...on, port: metricsPort, setting: 'METRICS_PORT' }, config.reusePort)
  logger.info('api.metrics_listening', { host: config.metricsHost, port })
  return server
}

async function bind(server: Server, wanted: WantedPort, reusePort: boolean): Promise<number> {
  try {
    return await listen(server, wanted.port, wanted.host, reusePort)
  } catch (error) {
    return fail(describePortFault(error, wanted))
  }
}

function refuse(error: unknown): never {
  if (error instanceof StartRefused) fail(error.message)
  throw error
}

function fail(sentence: string): never {
  process.stderr.write(`${sentence}\n`)
  process.exit(1)
}

await main()
