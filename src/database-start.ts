/**
 * What API and daemon need of the database before they serve.
 */
import { describeConnectionFault } from '../db/connection-fault.ts'
import type { Database } from '../db/connection.ts'
import { findDurabilityFaults } from '../db/durability.ts'
import { schemaIsCurrent } from '../db/migrate.ts'
import type { DatabaseClock } from './clock.ts'
import type { Config } from './config.ts'
import type { Logger } from './logger.ts'
import type { ProcessCounts } from './metrics.ts'

/** What a person must mend before the process can start. The message is one line that says how. */
export class StartRefused extends Error {}

export interface DatabaseStart {
  database: Database
  /** Of the database, and the setting it comes from. */
  mysqlUrl: string
  setting: string
  config: Config
  clock: DatabaseClock
  counts: ProcessCounts
  logger: Logger
}

/** @throws StartRefused */
export async function reachDatabase(start: DatabaseStart): Promise<void> {
  try {
    await followAndCheck(start)
  } catch (error) {
    if (error instanceof StartRefused) throw error
    const hint = start.config.privateDatabase ? ' (no MYSQL_URL is set: `make run` starts the private database)' : ''
    throw new StartRefused(`${describeConnectionFault(error, start.mysqlUrl, start.setting)}${hint}`)
  }
}

async function followAndCheck({ database, clock, counts, logger, config }: DatabaseStart): Promise<void> {
  await clock.follow(database.readTimeMs, (jumpMs, from) => {
    counts.clockJumps += 1
    logger.warn('clock_jump', { jumpMs, from })
  })
  if (!(await schemaIsCurrent(database.knex))) {
    throw new StartRefused('the database schema is not current: run make migrate')
  }
  const faults = await findDurabilityFaults(database.knex)
  if (faults.length > 0 && config.production) throw new StartRefused(faults.join('; '))
  for (const reason of faults) logger.warn('database.not_durable', { reason })
}
