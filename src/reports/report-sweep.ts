/**
 * Removes, at start and each hour, report files that no row speaks of: what a crash, a refused upload or a replaced draft
 * left. Any number of processes may do so at once.
 */
import type { Knex } from 'knex'
import type { Clock } from '../clock.ts'
import { errorFields, type Logger } from '../logger.ts'
import { listKnownFiles } from './bill-reports-repository.ts'
import type { ReportStore } from './report-store.ts'

const INTERVAL_MS = 3600_000

/** @returns stops it, after the run under way */
export function startReportSweep(deps: {
  knex: Knex
  clock: Clock
  logger: Logger
  reportStore: ReportStore
}): () => Promise<void> {
  const { knex, clock, logger, reportStore } = deps
  const run = async () => {
    try {
      const { removed, foreign } = await reportStore.sweep(clock.nowMs(), (ids) => listKnownFiles(knex, ids))
      if (removed > 0) logger.info('report_files.swept', { rows: removed })
      // With a mistyped MYSQL_URL these are all the reports that there are.
      if (foreign > 0) logger.warn('report_files.foreign', { rows: foreign })
    } catch (error) {
      logger.warn('report_files.sweep_failed', errorFields(error))
    }
  }
  let running = run()
  const timer = setInterval(() => {
    running = running.then(run)
  }, INTERVAL_MS)
  timer.unref()
  return async () => {
    clearInterval(timer)
    await running
  }
}
