/**
 * What API and daemon need of the database before they serve.
 */
import type { Knex } from 'knex'
import { describeConnectionFault } from '../db/connection-fault.ts'
import type { Database } from '../db/connection.ts'
import { findDurabilityFaults } from '../db/durability.ts'
import { schemaIsCurrent } from '../db/migrate.ts'
import { findServerSettingFaults } from '../db/server-settings.ts'
import type { DatabaseClock } from './clock.ts'
import type { Config } from './config.ts'
import { deriveKeys, isSealedUnder } from './crypto.ts'
import type { Logger } from './logger.ts'
import type { ProcessCounts } from './metrics.ts'
import { newestSealedSecrets } from './webhooks/webhook-secrets-repository.ts'

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
  const unusable = await findServerSettingFaults(database.knex)
  if (unusable.length > 0) throw new StartRefused(unusable.join('; '))
  const foreign = config.secretsKeyLost ? [] : await findForeignKey(database.knex, config.secretsKey)
  if (foreign.length > 0 && config.production) throw new StartRefused(foreign.join('; '))
  for (const reason of foreign) logger.warn('secrets.foreign_key', { reason })
  const faults = await findDurabilityFaults(database.knex)
  if (faults.length > 0 && config.production) throw new StartRefused(faults.join('; '))
  for (const reason of faults) logger.warn('database.not_durable', { reason })
}

/** So many that those which were damaged, or came from elsewhere, don't decide. */
const LOOKED_AT = 5

/** With another key everything would seem well, and nothing be delivered to the webhooks of before. */
async function findForeignKey(knex: Knex, secretsKey: Buffer): Promise<string[]> {
  const keys = deriveKeys(secretsKey)
  const sealed = await newestSealedSecrets(knex, LOOKED_AT)
  if (sealed.length === 0 || sealed.some((secret) => isSealedUnder(keys, secret))) return []
  return [
    "the webhooks' secrets were encrypted under another SECRETS_KEY: set that one (where it is unset it is secrets.key in DATA_DIR); only if it is lost set SECRETS_KEY_LOST=true, and give each webhook a new secret by rotateSecret",
  ]
}
