import type { Database } from '../../db/connection.ts'
import { monotonicMs, type Clock } from '../../src/clock.ts'
import { errorFields, type Logger } from '../../src/logger.ts'
import { logPurgeSteps } from '../../src/retention/log-retention-repository.ts'
import { claimPurge, recordPurgeDue } from '../../src/retention/purge-runs-repository.ts'
import type { Position, PurgeStep } from '../../src/retention/purge-step.ts'
import { purgeSteps } from '../../src/retention/retention-repository.ts'
import {
  cutoffsOf,
  FIRST_BATCH_ROWS,
  nextBatchRows,
  pauseMs,
  PURGE_EVERY_MS,
  PURGE_LEASE_MS,
  type RetentionSettings,
} from '../../src/retention/retention-rules.ts'
import { trustedClock } from './trusted-clock.ts'

export interface PurgeExpiredDeps {
  database: Database
  clock: Clock
  log: Logger
  settings: RetentionSettings
  /** True when the daemon is about to end: the next one goes on. */
  stopping: () => boolean
}

/**
 * Removes what has been kept for its time, each hour, batch after batch with pauses until nothing is left. A crash leaves
 * what a batch had not committed to the next purge.
 */
export function purgeExpired(deps: PurgeExpiredDeps): () => Promise<void> {
  const { database, clock, log, settings, stopping } = deps
  const isTrusted = trustedClock(clock)
  return async () => {
    if (!isTrusted()) return
    const now = clock.now()
    const latest = later(clock, PURGE_EVERY_MS)
    if (stopping() || !(await claimPurge(database.knex, now, later(clock, PURGE_LEASE_MS), latest))) return
    const cutoffs = cutoffsOf(now, settings)
    // What a clock that is put right again has not seen expire is not removed by what it showed at the beginning.
    let isCut = false
    const isOver = () => (isCut ||= stopping() || now.getTime() - clock.nowMs() > SAMPLE_ERROR_MS)
    for (const step of [...logPurgeSteps(cutoffs), ...purgeSteps(cutoffs)]) {
      try {
        await purge(deps, step, isOver)
      } catch (error) {
        // One kind of thing that can't be purged now must not keep all others.
        log.warn('purge.failed', { ...errorFields(error), operation: step.name })
      }
    }
    await recordPurgeDue(database.knex, isCut ? clock.now() : later(clock, PURGE_EVERY_MS))
  }
}

/** Half of the longest round trip that the clock is read by. */
const SAMPLE_ERROR_MS = 1000

async function purge(
  { database, clock, log }: PurgeExpiredDeps,
  step: PurgeStep,
  isOver: () => boolean,
): Promise<void> {
  const beganAtMs = monotonicMs()
  let leasedAtMs = beganAtMs
  let position: Position | undefined
  let limit = FIRST_BATCH_ROWS
  let removed = 0
  let slowestMs = 0
  while (!isOver()) {
    const startedAtMs = monotonicMs()
    const batch = await database.transaction((trx) => step.remove(trx, position, limit))
    const endedAtMs = monotonicMs()
    const tookMs = endedAtMs - startedAtMs
    slowestMs = Math.max(slowestMs, tookMs)
    removed += batch.removed
    position = batch.position
    if (batch.looked < limit && !batch.more) break
    limit = nextBatchRows(limit, tookMs)
    if (endedAtMs - leasedAtMs > PURGE_LEASE_MS / 5) {
      await recordPurgeDue(database.knex, later(clock, PURGE_LEASE_MS))
      leasedAtMs = endedAtMs
    }
    await new Promise((resolve) => setTimeout(resolve, pauseMs(tookMs)))
  }
  if (removed === 0) return
  log.info('purge.done', {
    operation: step.name,
    rows: removed,
    durationMs: Math.round(monotonicMs() - beganAtMs),
    slowestMs: Math.round(slowestMs),
  })
}

function later(clock: Clock, ms: number): Date {
  return new Date(clock.nowMs() + ms)
}
