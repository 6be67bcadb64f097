import type { Database } from '../../db/connection.ts'
import type { Clock } from '../../src/clock.ts'
import { listRunningRecoveries } from '../../src/deliveries/recovery-repository.ts'
import { stepRecovery } from '../../src/deliveries/recovery.ts'
import type { Recovery } from '../../src/deliveries/recovery-rules.ts'
import { errorFields, type Logger } from '../../src/logger.ts'

const RECOVERIES_AT_A_TIME = 50
/** Then the next run, within a second, goes on behind them. */
const PAGES_AT_A_TIME = 10
/** Steps of one recovery before the next one has its turn. */
const STEPS_AT_A_TIME = 20

export interface RecoverDeliveriesDeps {
  database: Database
  clock: Clock
  log: Logger
  stopping: () => boolean
}

/**
 * Takes the recoveries that were ordered further. How far each has come stands in its row, step by step, so any number of
 * daemons may do this, and one that is killed loses nothing. Every one has its turn, however many wait before it: a recovery
 * does not begin while its webhook's lane has old copies, or many that are due.
 */
export function recoverDeliveries(deps: RecoverDeliveriesDeps): () => Promise<void> {
  let lastId = ''
  return async () => {
    for (let page = 0; page < PAGES_AT_A_TIME && !deps.stopping(); page++) {
      const recoveries = await listRunningRecoveries(deps.database.knex, lastId, RECOVERIES_AT_A_TIME)
      for (const recovery of recoveries) await recover(deps, recovery)
      lastId = recoveries.length < RECOVERIES_AT_A_TIME ? '' : recoveries.at(-1)!.id
      if (lastId === '') return
    }
  }
}

async function recover({ database, clock, log, stopping }: RecoverDeliveriesDeps, recovery: Recovery): Promise<void> {
  try {
    for (let step = 0; step < STEPS_AT_A_TIME && !stopping(); step++) {
      const outcome = await database.transaction((trx) => stepRecovery(trx, recovery, clock.now()))
      if (outcome === 'ended') log.info('recovery.ended', { webhookId: recovery.webhookId })
      if (outcome !== 'more') return
    }
  } catch (error) {
    // The others go on; this one's step was rolled back, and is tried again the next time.
    log.warn('recovery.step_failed', { ...errorFields(error), webhookId: recovery.webhookId })
  }
}
