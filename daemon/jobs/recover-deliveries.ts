import type { Database } from '../../db/connection.ts'
import type { Clock } from '../../src/clock.ts'
import { listRunningRecoveries } from '../../src/deliveries/recovery-repository.ts'
import { stepRecovery } from '../../src/deliveries/recovery.ts'
import type { Recovery } from '../../src/deliveries/recovery-rules.ts'
import { errorFields, type Logger } from '../../src/logger.ts'

const RECOVERIES_AT_A_TIME = 50
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
 * daemons may do this, and one that is killed loses nothing.
 */
export function recoverDeliveries(deps: RecoverDeliveriesDeps): () => Promise<void> {
  return async () => {
    for (const recovery of await listRunningRecoveries(deps.database.knex, RECOVERIES_AT_A_TIME)) {
      await recover(deps, recovery)
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
