/**
 * The daemon put together: everything that `main.ts` starts and stops, with its parts as arguments, so that tests run two
 * of them side by side.
 */
import { schemaIsCurrent } from '../db/migrate.ts'
import type { Database } from '../db/connection.ts'
import type { Clock } from '../src/clock.ts'
import type { Config } from '../src/config.ts'
import { deriveKeys } from '../src/crypto.ts'
import { DaemonHints } from '../src/events/daemon-hints.ts'
import type { Logger } from '../src/logger.ts'
import { createAddressPolicy } from '../src/webhooks/endpoint-address.ts'
import { createScheduler } from './agenda.ts'
import { startHealthServer } from './health-server.ts'
import { listenForHints } from './hint-listener.ts'
import { checkWebhookHealth } from './jobs/check-webhook-health.ts'
import { deliverWebhook } from './jobs/deliver-webhook.ts'
import { retryWebhook } from './jobs/retry-webhook.ts'
import { sendMails } from './jobs/send-mails.ts'
import { Lanes } from './lanes.ts'
import { createMailTransport } from './mail-transport.ts'
import { Membership } from './membership.ts'
import { Recorder } from './recorder.ts'
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
}

export interface RunningDaemon {
  port: number
  /** Starts nothing more, lets what is in flight end and be recorded, and frees the lanes. */
  stop(): Promise<void>
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
}: DaemonOptions): Promise<RunningDaemon> {
  let draining = false
  const client = createWebhookClient({
    policy: createAddressPolicy(config.deliveryAllowCidrs),
    caFiles: config.deliveryCaFiles,
  })
  const recorder = new Recorder({
    batch: database.batch,
    token: () => membership.token,
    clock,
    rules: { ...config, random },
    log,
    onRecorded: (results, recorded) => lanes.recorded(results, recorded),
  })
  const lanes = new Lanes({
    database,
    clock,
    keys: deriveKeys(config.secretsKey),
    client,
    log,
    token: () => membership.token,
    userAgent: `LaboratoryIntegrationService/${version}`,
    maxInFlight: config.deliveryMaxInFlight,
    record: (result) => recorder.push(result),
  })
  const mailTransport = createMailTransport({
    smtpUrl: config.smtpUrl,
    from: config.mailFrom,
    dataDir: config.dataDir,
    now: () => clock.now(),
  })
  const hints = new DaemonHints(database.knex)
  const ticker = new Ticker({
    database,
    clock,
    log,
    owns: (webhookId) => lanes.owns(webhookId),
    offer: ({ webhookId, failing }) => scheduler.offer(failing ? 'retry-webhook' : 'deliver-webhook', webhookId),
    routed: (webhookIds) => {
      const all = lanes.nudge(webhookIds)
      if (!all && membership.others.length > 0) hints.send('lanes', membership.token)
    },
  })
  const health = await startHealthServer(config.daemonHost, config.daemonPort, async () => {
    if (draining) return 'draining'
    if (ticker.ageMs > TICK_MAX_AGE_MS) return 'the database does not answer'
    return (await schemaIsCurrent(database.knex)) ? undefined : 'the schema is not that of this version'
  })
  const listener = await listenForHints(config.daemonHost, health.port, (kind) => {
    if (kind === 'lanes') lanes.nudgeAll()
    ticker.wake()
  })
  const membership = new Membership({
    database,
    clock,
    log,
    hintHost: config.daemonHost,
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
    clockJobs: {
      'check-webhook-health': checkWebhookHealth({ database, clock, log, limits: config }),
      'send-mails': sendMails({ database, clock, log, transport: mailTransport, from: config.mailFrom }),
    },
    log,
  })
  await scheduler.start()
  lanes.start()
  ticker.wake()
  log.info('daemon.started', { daemon: membership.token, port: health.port, version })

  return {
    port: health.port,
    async stop() {
      draining = true
      listener.close()
      await ticker.stop()
      await lanes.stop()
      await recorder.drain()
      await membership.leave()
      await scheduler.stop()
      hints.close()
      await client.close()
      mailTransport.close()
      await health.close()
      log.info('daemon.stopped', { daemon: membership.token })
    },
  }
}
