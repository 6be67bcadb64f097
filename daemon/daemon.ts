/**
 * The daemon put together: everything that `main.ts` starts and stops, with its parts as arguments, so that tests run two
 * of them side by side.
 */
import { networkInterfaces } from 'node:os'
import type { Database } from '../db/connection.ts'
import type { Clock } from '../src/clock.ts'
import type { Config } from '../src/config.ts'
import { deriveKeys } from '../src/crypto.ts'
import { DaemonHints } from '../src/events/daemon-hints.ts'
import type { LogFields, Logger } from '../src/logger.ts'
import { DeliveryCounts } from '../src/metrics-deliveries.ts'
import { registerBacklog, registerPools, registerReadiness } from '../src/metrics-database.ts'
import { createMetrics, type Metrics } from '../src/metrics.ts'
import { createMessageGateway } from '../src/messages/message-gateway.ts'
import { Readiness } from '../src/readiness.ts'
import type { Tracing } from '../src/spans.ts'
import { deliveryAddresses } from '../src/webhooks/endpoint-address.ts'
import { createScheduler } from './agenda.ts'
import { ATTEMPT_CLASSES } from './attempt-faults.ts'
import { DeliveryTraces } from './delivery-traces.ts'
import { startHealthServer } from './health-server.ts'
import { hintHostOf, listenForHints } from './hint-listener.ts'
import { checkWebhookHealth, healthCheckEveryMs } from './jobs/check-webhook-health.ts'
import { deliverWebhook } from './jobs/deliver-webhook.ts'
import { followClock } from './jobs/follow-clock.ts'
import { purgeExpired } from './jobs/purge-expired.ts'
import { recoverDeliveries } from './jobs/recover-deliveries.ts'
import { retryWebhook } from './jobs/retry-webhook.ts'
import { sendMails } from './jobs/send-mails.ts'
import { sendMessages } from './jobs/send-messages.ts'
import { Lanes } from './lanes.ts'
import { createMailTransport } from './mail-transport.ts'
import { Membership } from './membership.ts'
import { Recorder } from './recorder.ts'
import { StopSteps } from './stop-steps.ts'
import { Ticker } from './ticker.ts'
import { createWebhookClient } from './webhook-client.ts'

/** A tick loop that has not come round for so long is not serving. */
const TICK_MAX_AGE_MS = 10_000

export interface DaemonOptions {
  config: Config
  database: Database
  clock: Clock
  log: Logger
  /** For `user-agent`. */
  version: string
  random?: () => number
  /** Of the process, to which the daemon's own are added. */
  metrics?: Metrics
  /** undefined: off. */
  tracing?: Tracing | undefined
}

export interface RunningDaemon {
  port: number
  /** Starts nothing more, lets what is in flight end and be recorded, and frees the lanes. */
  stop(): Promise<void>
  /** For the log of a stop that takes too long: what it still waits for. */
  unfinished(): LogFields
}

/** Locks in the job store are told apart by it. */
function processNameOf(token: string): string {
  return `daemon-${token}`
}

export async function startDaemon({
  config,
  database,
  clock,
  log,
  version,
  random = Math.random,
  metrics = createMetrics(false),
  tracing,
}: DaemonOptions): Promise<RunningDaemon> {
  let draining = false
  const counts = new DeliveryCounts(ATTEMPT_CLASSES)
  const traces = tracing ? new DeliveryTraces({ knex: database.knex, tracing, log }) : undefined
  const client = createWebhookClient({
    policy: deliveryAddresses(config),
    caFiles: config.deliveryCaFiles,
    headers: { 'content-type': 'application/json', 'user-agent': `LaboratoryIntegrationService/${version}` },
    ...(config.deliveryDnsServers.length > 0 ? { dnsServers: config.deliveryDnsServers } : {}),
  })
  const recorder = new Recorder({
    batch: database.batch,
    token: () => membership.token,
    clock,
    rules: { ...config, random },
    log,
    onUnrecordable: (result) => lanes.unrecordable(result),
    onRecorded: (results, recorded) => {
      lanes.recorded(results, recorded)
      counts.recorded(results, recorded, clock.nowMs())
      if (recorded.mails > 0) void mails.begin()
    },
  })
  const lanes = new Lanes({
    database,
    clock,
    keys: deriveKeys(config.secretsKey),
    client,
    log,
    token: () => membership.token,
    isSure: () => membership.isSure,
    maxInFlight: config.deliveryMaxInFlight,
    afterDeath: () => membership.hasSeenDeath,
    record: (result) => {
      traces?.attempted(result)
      recorder.push(result)
    },
    messagesDue: () => messagesDue(),
  })
  const mailTransport = createMailTransport({
    smtpUrl: config.smtpUrl,
    from: config.mailFrom,
    dataDir: config.dataDir,
    now: () => clock.now(),
  })
  const messageGateway = createMessageGateway({
    url: config.messageGatewayUrl,
    dataDir: config.dataDir,
    now: () => clock.now(),
  })
  const recoveries = recoverDeliveries({ database, clock, log, stopping: () => draining })
  /** As the last look for work has found. */
  let isRecovering = false
  const messages = sendMessages({ database, clock, log, gateway: messageGateway })
  const mails = sendMails({ database, clock, log, transport: mailTransport, from: config.mailFrom })
  const messagesDue = () => void messages.begin()
  const hints = new DaemonHints(database.knex)
  const jobOf = ({ failing }: { failing: boolean }) => (failing ? 'retry-webhook' : 'deliver-webhook')
  const ticker = new Ticker({
    database,
    clock,
    log,
    owns: (webhookId) => lanes.owns(webhookId),
    offer: (lane) => scheduler.offer(jobOf(lane), lane.webhookId),
    leftAlone: () => lanes.broken(),
    chooseAlong: (...given) => lanes.chooseAlong(...given),
    chooseAnyAlong: () => lanes.chooseAnyAlong(),
    takenEarly: (taken) => lanes.runTakenEarly(taken),
    confirmed: (taken) => lanes.confirm(taken),
    routed: ({ eventIds, webhookIds, taken, ...batch }) => {
      traces?.routed(eventIds, batch)
      const own = new Set(taken.map(({ state }) => state.webhookId))
      const others = lanes.nudge(webhookIds).filter((webhookId) => !own.has(webhookId))
      lanes.runTaken(taken)
      if (others.length > 0 && membership.others.length > 0) {
        hints.send('lanes', { webhookIds: others, exceptToken: membership.token })
      }
    },
    messagesDue,
    recovering: (isRunning) => (isRecovering = isRunning),
  })
  const readiness = new Readiness(database.knex, () => ticker.ageMs)
  const notReady = () =>
    readiness.fault ?? (ticker.ageMs > TICK_MAX_AGE_MS ? 'the loop that looks for work stands still' : undefined)
  registerMetrics(metrics, { counts, lanes, ticker, database, clock, notReady })
  const health = await startHealthServer(config.daemonHost, config.daemonPort, notReady, metrics, log)
  const listener = await listenForHints(config.daemonHost, health.port, ({ kind, eventId, webhookIds }) => {
    // Those for a daemon that has died may reach the next one on its port while that still starts.
    if (!ticker.isStarted) return
    if (kind === 'settings') return lanes.readSettings()
    if (kind === 'committing') return ticker.foresee(eventId!)
    if (kind === 'lanes') {
      if (!webhookIds) lanes.nudgeAll()
      else if (lanes.nudge(webhookIds).length === 0) return
    }
    ticker.wake(kind === 'events', eventId)
  })
  await readiness.start()
  const membership = new Membership({
    database,
    clock,
    log,
    hintHost: hintHostOf(config.daemonHost, networkInterfaces()),
    hintPort: listener.port,
    onExpelled: () => lanes.loseAll(),
    onFreed: (deadToken) => {
      scheduler.free(processNameOf(deadToken))
      ticker.wake()
    },
  })
  await membership.join()
  const scheduler = createScheduler({
    processName: processNameOf(membership.token),
    mongodbUrl: config.mongodbUrl,
    laneJobs: { 'deliver-webhook': deliverWebhook(lanes), 'retry-webhook': retryWebhook(lanes) },
    healthCheckEveryMs: healthCheckEveryMs(config),
    clockJobs: {
      'check-webhook-health': checkWebhookHealth({
        ...{ database, clock, log, limits: config },
        onWarned: () => void mails.begin(),
      }),
      'follow-clock': followClock({ database, clock, log }),
      'purge-expired': purgeExpired({ database, clock, log, settings: config, stopping: () => draining }),
      'recover-deliveries': async () => {
        if (isRecovering) await recoveries()
      },
      'send-mails': () => mails.begin(),
      'send-messages': () => messages.begin(),
    },
    log,
  })
  await scheduler.start()
  lanes.start()
  ticker.start()
  log.info('daemon.started', { daemon: membership.token, port: health.port, version })

  const steps = new StopSteps()
  return {
    port: health.port,
    async stop() {
      draining = true
      readiness.drain()
      listener.close()
      await steps.wait('fan-out', ticker.stop())
      // They wait for calls that are in flight. What is handed back meanwhile is left to the next daemon that looks.
      await Promise.all([
        steps.wait('lanes', lanes.stop()),
        steps.wait('messages', messages.stop()),
        steps.wait('mails', mails.stop()),
      ])
      await steps.wait('recording', recorder.drain())
      if (traces) await steps.wait('traces', traces.stop())
      await steps.wait('leaving', membership.leave())
      await steps.wait('jobs', scheduler.stop())
      hints.close()
      await steps.wait('connections', client.close())
      mailTransport.close()
      await health.close()
      log.info('daemon.stopped', { daemon: membership.token })
    },
    unfinished: () => ({
      daemon: membership.token,
      state: steps.unfinished,
      lanes: lanes.size,
      deliveries: lanes.inFlight('healthy') + lanes.inFlight('retry'),
      batch: recorder.unrecorded,
    }),
  }
}

interface Measured {
  counts: DeliveryCounts
  lanes: Lanes
  ticker: Ticker
  database: Database
  clock: Clock
  notReady: () => string | undefined
}

function registerMetrics(metrics: Metrics, { counts, lanes, ticker, database, clock, notReady }: Measured): void {
  registerReadiness(metrics, notReady)
  counts.register(metrics)
  registerPools(metrics, database)
  registerBacklog(metrics, database, clock)
  metrics.gauge('lis_deliveries_in_flight', 'Requests under way, by the budget that they count in', () => [
    { labels: { pool: 'healthy' }, value: lanes.inFlight('healthy') },
    { labels: { pool: 'retry' }, value: lanes.inFlight('retry') },
  ])
  metrics.gauge('lis_lanes_owned', 'Lanes that this daemon owns', () => [{ value: lanes.size }])
  metrics.gauge('lis_tick_age_seconds', 'Time since this daemon last looked for work', () => [
    { value: ticker.ageMs / 1000 },
  ])
}
