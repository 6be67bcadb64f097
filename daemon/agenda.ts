/**
 * Agenda schedules; MySQL is the truth. A job says "look at this lane" and can be lost, doubled or late without harm.
 *
 * Every daemon has an Agenda on the embedded job store. With MONGODB_URL a second one keeps the lanes' jobs in MongoDB, and
 * the embedded one goes on with whatever that one does not get done: so it can be stopped, wiped or slow at any time.
 */
import { Agenda, type AgendaBackend, type Job } from 'agenda'
import { monotonicMs, processClock } from '../src/clock.ts'
import { errorFields, type Logger } from '../src/logger.ts'
import { AgendaMemoryStore } from './agenda-memory-store.ts'
import type { MongoJobStore } from './mongo-job-store.ts'
import { OfferBook } from './offer-book.ts'

/** A job that has not been touched for so long is free for another daemon. */
const LOCK_LIFETIME_MS = 20_000
const TOUCH_MS = 5000
/** How often a store is asked for jobs that another process has saved. Our own wake us at once. */
const SCAN_MS = { embedded: 1000, mongodb: 250 }
/** Lanes at a time of each kind. A lane is cheap; requests in flight are bounded elsewhere. */
const CONCURRENT_LANES = 5000
const JOIN_AGAIN_MS = 2000
/** Agenda repeats an error at every scan; one line in this time says it. */
const ERROR_LINE_MS = 10_000

export type LaneJobName = 'deliver-webhook' | 'retry-webhook'

export type ClockJobName =
  'check-webhook-health' | 'follow-clock' | 'send-mails' | 'send-messages' | 'purge-expired' | 'recover-deliveries'

/** How often each clock job runs, in milliseconds, but for the one that is told. */
const CLOCK_JOB_EVERY_MS: Record<Exclude<ClockJobName, 'check-webhook-health'>, number> = {
  // What waits is moved at the second look after the clock was set back.
  'follow-clock': 5000,
  // What is due stands in a row: once an hour one of the daemons finds it so.
  'purge-expired': 60_000,
  // Steps of what somebody waits for; where none was ordered, one look at an index.
  'recover-deliveries': 1000,
  'send-mails': 5000,
  // What becomes due here is sent at once; this finds what another daemon has left, and what is due again.
  'send-messages': 5000,
}

export interface LaneJobData {
  webhook: string
}

export interface Scheduler {
  start(): Promise<void>
  /** Saves a job for a lane unless one is there. */
  offer(name: LaneJobName, webhookId: string): void
  /** Frees the jobs that a daemon which is dead had locked. */
  free(processName: string): void
  stop(): Promise<void>
}

export interface SchedulerOptions {
  /** Unique to this process: its locks are told from others' by it. */
  processName: string
  laneJobs: Record<LaneJobName, (webhookId: string) => Promise<void>>
  clockJobs: Record<ClockJobName, () => Promise<void>>
  /** How often `check-webhook-health` runs, in milliseconds. */
  healthCheckEveryMs: number
  mongodbUrl?: string | undefined
  log: Logger
}

export function createScheduler(options: SchedulerOptions): Scheduler {
  const { processName, clockJobs, healthCheckEveryMs, mongodbUrl, log } = options
  const everyMs = { ...CLOCK_JOB_EVERY_MS, 'check-webhook-health': healthCheckEveryMs }
  let embedded = createEmbedded()
  let shared: { agenda: Agenda; store: MongoJobStore } | undefined
  let stopping = false
  const offers = new OfferBook()

  function createEmbedded(): Agenda {
    const agenda = createAgenda(options, new AgendaMemoryStore(), SCAN_MS.embedded)
    // The clock's jobs are guarded by rows, so each daemon runs its own: they need no shared store.
    for (const [name, run] of Object.entries(clockJobs)) {
      agenda.define(name, (job) => runTouching(job, run, log), { concurrency: 1 })
    }
    return agenda
  }

  async function startEmbedded(): Promise<void> {
    await embedded.start()
    for (const [name, ms] of Object.entries(everyMs)) await embedded.every(ms, name)
  }

  /**
   * Agenda goes by the process's own clock: when that is set back, what is due stays asleep until it has come up again, hours
   * or days later. A new one has nothing asleep. Jobs that run go on to their end, and lanes are offered again.
   */
  const stopWatching = watchForSetBack(() => {
    const before = embedded
    embedded = createEmbedded()
    startEmbedded()
      .then(() => before.stop())
      .catch((error) => log.warn('agenda.restart_failed', errorFields(error)))
  })

  /** In the background, however long it takes: the daemon works without it. */
  async function joinSharedStore(url: string): Promise<void> {
    // Loaded where it is used: MongoDB's driver takes a tenth of a second of the start, and 10 MB of heap.
    const { connectMongoJobStore } = await import('./mongo-job-store.ts')
    for (;;) {
      const store = await connectMongoJobStore(url, log, () => stopping)
      if (!store) return
      const agenda = createAgenda(options, store.backend, SCAN_MS.mongodb)
      try {
        await agenda.start()
        shared = { agenda, store }
        log.info('job_store.joined', { state: 'mongodb' })
        return
      } catch (error) {
        // It went away again in between.
        log.warn('job_store.failed', errorFields(error))
        await agenda.stop().catch(() => {})
        await store.close().catch(() => {})
      }
      await new Promise((resolve) => setTimeout(resolve, JOIN_AGAIN_MS))
    }
  }

  function offer(name: LaneJobName, webhookId: string): void {
    const toEmbedded = () => void saveLaneJob(embedded, name, webhookId, log)
    // A lane that is offered again and again is one whose job in the shared store nobody runs.
    if (!shared || offers.isOverdue(webhookId)) return toEmbedded()
    const { agenda } = shared
    void offers.unlessLate(saveLaneJob(agenda, name, webhookId, log)).then((saved) => {
      if (!saved) toEmbedded()
    })
  }

  return {
    async start() {
      await startEmbedded()
      if (mongodbUrl)
        void joinSharedStore(mongodbUrl).catch((error) => log.warn('job_store.failed', errorFields(error)))
    },
    offer,
    free(deadProcess) {
      shared?.store.unlockJobsOf(deadProcess).catch((error) => log.debug('job_store.unlock_failed', errorFields(error)))
    },
    async stop() {
      stopping = true
      stopWatching()
      await embedded.stop()
      if (!shared) return
      await offers.unlessLate(
        shared.agenda
          .stop()
          .then(() => shared!.store.unlockJobsOf(processName))
          .then(() => true),
      )
      await shared.store.close()
    },
  }
}

const LOOK_AT_CLOCK_MS = 1000
/** Less is what clocks are set by all the time. */
const SET_BACK_MS = 1000

/** @returns what ends it */
function watchForSetBack(onSetBack: () => void): () => void {
  let offsetMs = processClock.nowMs() - monotonicMs()
  const timer = setInterval(() => {
    const before = offsetMs
    offsetMs = processClock.nowMs() - monotonicMs()
    if (offsetMs < before - SET_BACK_MS) onSetBack()
  }, LOOK_AT_CLOCK_MS)
  return () => clearInterval(timer)
}

function createAgenda(
  { processName, laneJobs, log }: SchedulerOptions,
  backend: AgendaBackend,
  scanMs: number,
): Agenda {
  const agenda = new Agenda({
    backend,
    name: processName,
    processEvery: scanMs,
    maxConcurrency: 2 * CONCURRENT_LANES,
    defaultConcurrency: CONCURRENT_LANES,
    // 0: none. With a limit, Agenda refills only at its next scan.
    lockLimit: 0,
    defaultLockLimit: 0,
    defaultLockLifetime: LOCK_LIFETIME_MS,
    removeOnComplete: true,
  })
  // Agenda's errors are silent unless somebody listens.
  let saidAtMs = -Infinity
  agenda.on('error', (error: Error) => {
    if (monotonicMs() - saidAtMs < ERROR_LINE_MS) return
    saidAtMs = monotonicMs()
    log.warn('agenda.error', { ...errorFields(error), state: backend.name })
  })
  for (const [name, run] of Object.entries(laneJobs)) {
    agenda.define<LaneJobData>(
      name,
      (job) => runTouching(job as Job<unknown>, () => run(job.attrs.data.webhook), log),
      { concurrency: CONCURRENT_LANES },
    )
  }
  return agenda
}

/**
 * Inserted only where none exists: saving over an existing job would reset what its run relies on.
 * @returns whether a job for the lane is there
 */
async function saveLaneJob(agenda: Agenda, name: LaneJobName, webhookId: string, log: Logger): Promise<boolean> {
  const job = agenda.create<LaneJobData>(name, { webhook: webhookId })
  job.unique({ 'data.webhook': webhookId }, { insertOnly: true })
  job.schedule(processClock.now())
  try {
    await job.save()
    return true
  } catch (error) {
    // Two daemons at once: the unique index let one in, and that is enough.
    if ((error as { code?: unknown }).code === DUPLICATE_KEY) return true
    log.debug('job_store.offer_failed', { ...errorFields(error), webhookId })
    return false
  }
}

/** MongoDB's code for a document that a unique index refuses. */
const DUPLICATE_KEY = 11000

/** Keeps the job's lock alive while it runs. Losing it does no harm: what a job writes is fenced by the lane's owner. */
async function runTouching(job: Job<unknown>, run: () => Promise<void>, log: Logger): Promise<void> {
  const timer = setInterval(
    () => job.touch().catch((error) => log.debug('agenda.touch_failed', errorFields(error))),
    TOUCH_MS,
  )
  try {
    await run()
  } catch (error) {
    log.warn('job.failed', { ...errorFields(error), operation: job.attrs.name })
  } finally {
    clearInterval(timer)
  }
}
