/**
 * Carries erasures on: the call that orders one does as much as fits into an answer, the rest is done here, in every API
 * process. Also what a process that was killed has begun.
 */
import { isConnectionFault, isRetriable } from '../../db/connection.ts'
import { monotonicMs } from '../clock.ts'
import { DomainError } from '../errors.ts'
import type { HintKind } from '../events/daemon-hints.ts'
import { errorFields, type Logger } from '../logger.ts'
import { stepErasure, type ErasureDeps } from './erasure.ts'
import { listRunningErasures } from './erasures-repository.ts'

const EVERY_MS = 2000
const ERASURES_AT_A_TIME = 10

/**
 * Steps until the erasure is done, waits for a daemon, or the time is over. What the database does not take is left for later.
 * @returns whether it is done, or somebody else is at it
 */
export async function runErasure(
  deps: ErasureDeps & { hint: (kind?: HintKind) => void },
  erasureId: string,
  untilMs: number,
  delayed: (error: unknown) => void = () => {},
): Promise<boolean> {
  try {
    while (monotonicMs() < untilMs) {
      const outcome = await stepErasure(deps, erasureId)
      if (outcome === 'ended') return true
      if (outcome === 'waiting') {
        deps.hint('settings')
        return false
      }
    }
  } catch (error) {
    if (!isLater(error)) throw error
    delayed(error)
  }
  return false
}

/** Whether it is the database's fault or the disk's, or somebody was in the way: what is ordered is carried on later. */
export function isLater(error: unknown): boolean {
  return isConnectionFault(error) || isRetriable(error) || error instanceof DomainError
}

/** @returns stops it, after the step under way */
export function startErasures(
  deps: ErasureDeps & { logger: Logger; hint: (kind?: HintKind) => void },
): () => Promise<void> {
  const { database, logger } = deps
  const delayed = (error: unknown) => logger.warn('erasures.delayed', errorFields(error))
  let isStopping = false
  let lastId = ''
  const run = async () => {
    try {
      // All of them: those that wait for a daemon keep no later one from beginning, and one that fails is stepped over next time.
      let isLast = false
      while (!isLast) {
        const erasureIds = await listRunningErasures(database.knex, lastId, ERASURES_AT_A_TIME)
        isLast = erasureIds.length < ERASURES_AT_A_TIME
        for (const erasureId of erasureIds) {
          if (isStopping) return
          lastId = erasureId
          await runErasure(deps, erasureId, monotonicMs() + EVERY_MS, delayed)
        }
      }
      lastId = ''
    } catch (error) {
      delayed(error)
    }
  }
  let running = run()
  const timer = setInterval(() => {
    running = running.then(() => (isStopping ? undefined : run()))
  }, EVERY_MS)
  timer.unref()
  return async () => {
    isStopping = true
    clearInterval(timer)
    await running
  }
}
