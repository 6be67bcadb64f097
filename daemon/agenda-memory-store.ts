/**
 * The embedded job store: Agenda's jobs in this process's memory, nothing to install. A job is only a hint, so losing them
 * all at a stop loses nothing: what is due stands in the database.
 */
import {
  computeJobState,
  InMemoryNotificationChannel,
  toJobId,
  type AgendaBackend,
  type JobParameters,
  type JobRepository,
  type JobsOverview,
  type JobsQueryOptions,
  type JobsResult,
  type RemoveJobsOptions,
} from 'agenda'
import { randomUUID } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import { processClock } from '../src/clock.ts'

export class AgendaMemoryStore implements AgendaBackend, JobRepository {
  readonly name = 'memory'
  readonly repository = this
  /** Wakes the processor in the same turn in which a job is saved. */
  readonly notificationChannel = new InMemoryNotificationChannel()
  readonly ownsConnection = true
  readonly #jobs = new Map<string, JobParameters>()
  /** Ids of jobs that nobody has locked, by name: the only ones a search for the next job looks at. */
  readonly #free = new Map<string, Set<string>>()
  /** Ids of lanes' jobs by `laneKey`: thousands of them, each looked for by its webhook. */
  readonly #ofWebhook = new Map<string, string>()
  /** Ids of locked jobs by name, the longest locked first. */
  readonly #locked = new Map<string, Set<string>>()

  async connect(): Promise<void> {
    await this.notificationChannel.connect()
  }

  async disconnect(): Promise<void> {
    await this.notificationChannel.disconnect()
  }

  async saveJob<DATA>(job: JobParameters<DATA>): Promise<JobParameters<DATA>> {
    const existing = this.#findExisting(job as JobParameters)
    if (existing && job.uniqueOpts?.insertOnly) return { ...existing } as JobParameters<DATA>
    const stored: JobParameters = {
      ...existing,
      ...job,
      _id: existing?._id ?? job._id ?? toJobId(randomUUID()),
    } as JobParameters
    // Saving a job never unlocks one that runs.
    if (existing?.lockedAt) stored.lockedAt = existing.lockedAt
    delete stored.unique
    delete stored.uniqueOpts
    this.#put(stored)
    return { ...stored } as JobParameters<DATA>
  }

  async saveJobState(job: JobParameters): Promise<void> {
    const existing = this.#jobs.get(String(job._id))
    if (!existing) return
    const { lockedAt, nextRunAt, lastRunAt, progress, failReason, failCount, failedAt, lastFinishedAt } = job
    this.#put({
      ...existing,
      nextRunAt,
      ...{ lockedAt, lastRunAt, progress, failReason, failCount, failedAt, lastFinishedAt },
    } as JobParameters)
  }

  async getNextJobToRun(jobName: string, nextScanAt: Date, lockDeadline: Date): Promise<JobParameters | undefined> {
    for (const id of this.#free.get(jobName) ?? []) {
      const job = this.#jobs.get(id)!
      if (!job.disabled && job.nextRunAt && job.nextRunAt <= nextScanAt) return this.#lock(job)
    }
    for (const id of this.#locked.get(jobName) ?? []) {
      const job = this.#jobs.get(id)!
      // In the order of locking: behind the first that is younger all are.
      if (job.lockedAt! > lockDeadline) break
      return this.#lock(job)
    }
    return undefined
  }

  async lockJob(job: JobParameters): Promise<JobParameters | undefined> {
    const existing = this.#jobs.get(String(job._id))
    if (!existing || existing.lockedAt || existing.disabled) return undefined
    return this.#lock(existing)
  }

  async unlockJob(job: JobParameters): Promise<void> {
    await this.unlockJobs(job._id ? [job._id] : [])
  }

  async unlockJobs(jobIds: string[]): Promise<void> {
    for (const id of jobIds) {
      const job = this.#jobs.get(String(id))
      if (job) this.#put({ ...job, lockedAt: undefined } as unknown as JobParameters)
    }
  }

  async removeJobs(options: RemoveJobsOptions): Promise<number> {
    const jobs = this.#select(options)
    for (const job of jobs) this.#delete(job)
    return jobs.length
  }

  async disableJobs(options: RemoveJobsOptions): Promise<number> {
    return this.#setDisabled(options, true)
  }

  async enableJobs(options: RemoveJobsOptions): Promise<number> {
    return this.#setDisabled(options, false)
  }

  async purgeAllJobs(): Promise<number> {
    return this.removeJobs({ notNames: [] })
  }

  async getJobById(id: string): Promise<JobParameters | null> {
    return this.#jobs.get(id) ?? null
  }

  async getQueueSize(): Promise<number> {
    const now = processClock.now()
    return [...this.#jobs.values()].filter((job) => job.nextRunAt && job.nextRunAt < now).length
  }

  async getDistinctJobNames(): Promise<string[]> {
    return [...new Set([...this.#jobs.values()].map((job) => job.name))].sort()
  }

  async queryJobs(options: JobsQueryOptions = {}): Promise<JobsResult> {
    const names = options.name === undefined ? options.names : [options.name]
    const ids = options.id === undefined ? options.ids : [options.id]
    const now = processClock.now()
    const jobs = [...this.#jobs.values()]
      .filter((job) => (!names || names.includes(job.name)) && (!ids || ids.includes(String(job._id))))
      .filter((job) => options.includeDisabled !== false || !job.disabled)
      .filter((job) => options.data === undefined || isDeepStrictEqual(job.data, options.data))
      .filter((job) => !options.search || job.name.includes(options.search))
      .map((job) => ({ ...job, _id: job._id!, state: computeJobState(job, now) }))
      .filter((job) => !options.state || job.state === options.state)
    const skip = options.skip ?? 0
    return { jobs: jobs.slice(skip, options.limit ? skip + options.limit : undefined), total: jobs.length }
  }

  async getJobsOverview(): Promise<JobsOverview[]> {
    const overviews = new Map<string, JobsOverview>()
    for (const { name, state } of (await this.queryJobs()).jobs) {
      const overview = overviews.get(name) ?? { ...EMPTY_OVERVIEW, name }
      overview.total += 1
      overview[state] += 1
      overviews.set(name, overview)
    }
    return [...overviews.values()]
  }

  #setDisabled(options: RemoveJobsOptions, disabled: boolean): number {
    const jobs = this.#select(options)
    for (const job of jobs) this.#put({ ...job, disabled })
    return jobs.length
  }

  #select(options: RemoveJobsOptions): JobParameters[] {
    const ids = options.ids ?? (options.id === undefined ? undefined : [options.id])
    const names = options.names ?? (options.name === undefined ? undefined : [options.name])
    const found = ids ? ids.map((id) => this.#jobs.get(String(id))) : [...this.#jobs.values()]
    return found.filter(
      (job): job is JobParameters =>
        job !== undefined &&
        (!names || names.includes(job.name)) &&
        (!options.notNames || !options.notNames.includes(job.name)) &&
        (options.data === undefined || isDeepStrictEqual(job.data, options.data)),
    )
  }

  /** The job that a unique save or a recurring one (`single`) stands for. */
  #findExisting(job: JobParameters): JobParameters | undefined {
    if (job._id) return this.#jobs.get(String(job._id))
    const conditions = job.unique ? Object.entries(job.unique) : job.type === 'single' ? [] : undefined
    if (!conditions) return undefined
    const webhook = job.unique && conditions.length === 1 ? job.unique[WEBHOOK] : undefined
    if (typeof webhook === 'string') return this.#jobs.get(this.#ofWebhook.get(laneKey(job.name, webhook)) ?? '')
    for (const other of this.#jobs.values()) {
      if (
        other.name === job.name &&
        conditions.every(([path, value]) => isDeepStrictEqual(valueAt(other, path), value))
      )
        return other
    }
    return undefined
  }

  #lock(job: JobParameters): JobParameters {
    const locked = { ...job, lockedAt: processClock.now() }
    this.#put(locked)
    return { ...locked }
  }

  #put(job: JobParameters): void {
    this.#delete(job)
    const id = String(job._id)
    this.#jobs.set(id, job)
    const webhook = valueAt(job, WEBHOOK)
    if (typeof webhook === 'string') this.#ofWebhook.set(laneKey(job.name, webhook), id)
    const index = job.lockedAt ? this.#locked : this.#free
    const ids = index.get(job.name) ?? new Set()
    index.set(job.name, ids.add(id))
  }

  #delete(job: JobParameters): void {
    const id = String(job._id)
    const webhook = valueAt(this.#jobs.get(id) ?? job, WEBHOOK)
    const key = typeof webhook === 'string' ? laneKey(job.name, webhook) : undefined
    if (key !== undefined && this.#ofWebhook.get(key) === id) this.#ofWebhook.delete(key)
    this.#jobs.delete(id)
    this.#free.get(job.name)?.delete(id)
    this.#locked.get(job.name)?.delete(id)
  }
}

const EMPTY_OVERVIEW = {
  total: 0,
  running: 0,
  scheduled: 0,
  queued: 0,
  completed: 0,
  failed: 0,
  repeating: 0,
  paused: 0,
}

/** What lanes' jobs are unique by. */
const WEBHOOK = 'data.webhook'

function laneKey(name: string, webhook: string): string {
  return `${name} ${webhook}`
}

/** Reads a dotted path (`data.webhook`), as unique conditions name fields. */
function valueAt(job: JobParameters, path: string): unknown {
  return path.split('.').reduce<unknown>((value, key) => (value as Record<string, unknown> | undefined)?.[key], job)
}
