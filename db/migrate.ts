/**
 * Brings the schema up to the code's. Any number of processes may start it at once: a row with an owner and a beat lets
 * one of them work while the others wait, and a holder that was killed is replaced when its beat stands still.
 */
import knexFactory, { type Knex } from 'knex'
import { escapeId } from 'mysql2'
import { createConnection } from 'mysql2/promise'
import { monotonicMs } from '../src/clock.ts'
import { errorFields, type Logger } from '../src/logger.ts'
import { describeConnectionFault, isRightMissing } from './connection-fault.ts'
import { driverOptions, isRetriable, SESSION_STATEMENTS } from './connection.ts'
import { listMigrationNames, MIGRATIONS } from './knexfile.ts'
import { takeMigrationGuard } from './migration-guard.ts'
import { findServerSettingFaults } from './server-settings.ts'

/** What a person must mend before the schema can be used. The message is one line that says how. */
export class MigrationFault extends Error {}

const ER_BAD_DATABASE = 1049
const ER_NO_SUCH_TABLE = 1146

/** A DDL statement that waits for a table's lock holds up every later query on it, so it waits briefly and tries again. */
const TABLE_LOCK_WAIT_SECONDS = 1
const TABLE_LOCK_BUDGET_MS = 120_000

/**
 * Creates the database if it is missing, and applies what is not yet applied.
 * @param onProgress told in plain words what is done; at most one line a second
 * @param setting where the URL comes from
 * @returns the number of migrations applied by this call
 * @throws MigrationFault when the database can't be reached, is too old or set up so that it can't be used, its schema is newer than this code, or the user
 * may not change it
 */
export async function migrate(
  mysqlUrl: string,
  log: Logger,
  onProgress: (line: string) => void = () => {},
  setting?: string,
): Promise<number> {
  await makeSureDatabaseExists(mysqlUrl, onProgress, setting)
  const knex = connect(mysqlUrl)
  try {
    await refuseServer(knex)
    if (missingMigrations(await appliedMigrations(knex)).length === 0) return 0
    const guard = await takeMigrationGuard(knex, onProgress)
    try {
      // Read again: whoever held the guard before may have done everything.
      const missing = missingMigrations(await appliedMigrations(knex))
      if (missing.length === 0) return 0
      await applyAll(knex, missing.length, guard.prove, log, onProgress)
      return missing.length
    } finally {
      await guard.release()
    }
  } catch (error) {
    throw isRightMissing(error) ? new MigrationFault(describeConnectionFault(error, mysqlUrl, setting)) : error
  } finally {
    await knex.destroy()
  }
}

/**
 * Whether everything this code needs is applied. One short query. A newer schema is current too: in a rolling release the
 * processes of before go on, and are started again, while the next version has migrated; only `migrate` refuses it.
 * @throws when the database does not answer
 */
export async function schemaIsCurrent(knex: Knex): Promise<boolean> {
  const names = listMigrationNames()
  try {
    const rows = await knex(MIGRATIONS.tableName).distinct('name').whereIn('name', names)
    return rows.length === names.length
  } catch (error) {
    if ((error as { errno?: number }).errno === ER_NO_SUCH_TABLE) return false
    throw error
  }
}

function connect(mysqlUrl: string): Knex {
  const silent = () => {}
  return knexFactory({
    client: 'mysql2',
    // A character set, not a collation: knex takes it as the default of its own two tables.
    connection: {
      ...driverOptions(mysqlUrl),
      charset: 'utf8mb4',
      multipleStatements: true,
    } as Knex.MySql2ConnectionConfig,
    // One connection for the statement that may take minutes, one for the beat meanwhile.
    pool: {
      min: 0,
      max: 2,
      afterCreate: (
        connection: { query: (sql: string, done: (error: unknown) => void) => void },
        done: (error: unknown, connection: unknown) => void,
      ) => {
        const statements = [...SESSION_STATEMENTS, `SET lock_wait_timeout=${TABLE_LOCK_WAIT_SECONDS}`]
        connection.query(statements.join(';'), (error) => done(error, connection))
      },
    },
    // Knex prints its own advice about its lock, which our guard makes wrong; what fails is thrown as well.
    log: { warn: silent, error: silent, debug: silent, deprecate: silent },
  })
}

async function applyAll(
  knex: Knex,
  count: number,
  proveOwnership: () => Promise<void>,
  log: Logger,
  onProgress: (line: string) => void,
): Promise<void> {
  const startedAt = monotonicMs()
  let done = 0
  let saidAt = startedAt
  let stepStartedAt = startedAt
  onProgress(`applying ${count} migrations …`)
  const config: Knex.MigratorConfigWithLifecycleHooks = {
    ...MIGRATIONS,
    beforeEach: async () => {
      await proveOwnership()
      stepStartedAt = monotonicMs()
    },
    afterEach: async (_knex, [migration]) => {
      const { file } = migration as { file: string }
      done++
      const now = monotonicMs()
      log.info('migration.applied', { migration: file, durationMs: Math.round(now - stepStartedAt) })
      if (now - saidAt < 1000) return
      saidAt = now
      onProgress(`applied ${done} of ${count}, last ${file}`)
    },
  }
  for (;;) {
    try {
      // A starter that was killed left knex's own lock behind; we hold the guard, so nobody else can own it.
      await knex.migrate.forceFreeMigrationsLock(config)
      await knex.migrate.latest(config)
      return
    } catch (error) {
      if (!isRetriable(error)) throw error
      if (monotonicMs() - startedAt > TABLE_LOCK_BUDGET_MS) {
        throw new MigrationFault('a table stays locked by another session: end its long transaction and start again')
      }
      log.warn('migration.waits', errorFields(error))
      await new Promise((resolve) => setTimeout(resolve, 500))
    }
  }
}

/** Names in the order of their application; none when nothing was ever applied. */
async function appliedMigrations(knex: Knex): Promise<string[]> {
  try {
    return await knex(MIGRATIONS.tableName).orderBy('id').pluck('name')
  } catch (error) {
    if ((error as { errno?: number }).errno === ER_NO_SUCH_TABLE) return []
    throw error
  }
}

function missingMigrations(applied: string[]): string[] {
  const known = listMigrationNames()
  const unknown = applied.filter((name) => !known.includes(name))
  if (unknown.length > 0) {
    throw new MigrationFault(
      `the database's schema is newer than this version (it has ${unknown.join(', ')}): start the version that made it, or restore a backup from before`,
    )
  }
  return known.filter((name) => !applied.includes(name))
}

async function refuseServer(knex: Knex): Promise<void> {
  const [rows] = await knex.raw('SELECT VERSION() AS version')
  const fault = serverFault(String(rows[0].version))
  if (fault) throw new MigrationFault(fault)
  const faults = await findServerSettingFaults(knex)
  if (faults.length > 0) throw new MigrationFault(faults.join('; '))
}

/** @returns a sentence when a server of this version can't be used. Exported for its test. */
export function serverFault(version: string): string | undefined {
  // MariaDB once put 5.5.5- before its own version, for the sake of old replicas.
  const numbers = version.replace(/^5\.5\.5-/, '').match(/^(\d+)\.(\d+)/)
  const [major, minor] = [Number(numbers?.[1] ?? 0), Number(numbers?.[2] ?? 0)]
  const isMariaDb = /mariadb/i.test(version)
  const isNewEnough = isMariaDb ? major > 10 || (major === 10 && minor >= 6) : major >= 8
  if (isNewEnough) return undefined
  return `the database server is ${isMariaDb ? 'MariaDB' : 'MySQL'} ${version}: MySQL 8.0 or later, or MariaDB 10.6 or later, is needed`
}

async function makeSureDatabaseExists(
  mysqlUrl: string,
  onProgress: (line: string) => void,
  setting?: string,
): Promise<void> {
  const options = driverOptions(mysqlUrl)
  try {
    await (await createConnection(options)).end()
    return
  } catch (error) {
    if ((error as { errno?: number }).errno !== ER_BAD_DATABASE)
      throw new MigrationFault(describeConnectionFault(error, mysqlUrl, setting))
  }
  try {
    const connection = await createConnection({ ...options, database: undefined })
    try {
      onProgress(`creating the database ${options.database} …`)
      for (const statement of SESSION_STATEMENTS) await connection.query(statement)
      // Every table names its own; this is for what is made by hand.
      await connection.query(
        `CREATE DATABASE IF NOT EXISTS ${escapeId(options.database!)} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`,
      )
    } finally {
      await connection.end()
    }
  } catch (error) {
    throw new MigrationFault(describeConnectionFault(error, mysqlUrl, setting))
  }
}
