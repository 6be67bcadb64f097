/**
 * `make doctor`: recomputes what follows from other rows (health from attempts, what is due, guards, orphans) and names what
 * is off. Reads only. Exit code 1 when it finds something.
 */
import knexFactory, { type Knex } from 'knex'
import { driverOptions, isConnectionFault, isRetriable, SESSION_STATEMENTS } from '../db/connection.ts'
import { schemaIsCurrent } from '../db/migrate.ts'
import { monotonicMs } from '../src/clock.ts'
import { ConfigError, loadEnvFile, readConfig } from '../src/config.ts'
import { examine } from './doctor/examination.ts'
import { StartFault } from './processes.ts'

/** Whatever is on its way between two of its reads has arrived by then. */
const SECOND_LOOK_MS = 2000

/** @returns the exit code */
async function main(): Promise<number> {
  loadEnvFile()
  const config = readConfig()
  const startedAtMs = monotonicMs()
  const knex = connect(config.mysqlUrl)
  try {
    const now = await readTime(knex)
    if (!(await schemaIsCurrent(knex))) throw new StartFault('the database schema is not current: run `make migrate`')
    const { checks, findings } = await examine({ ...config, limits: config, knex, now }, SECOND_LOOK_MS)
    for (const { check, sentence } of findings) console.log(`doctor: ${check}: ${sentence}`)
    const seconds = ((monotonicMs() - startedAtMs) / 1000).toFixed(1)
    console.log(`doctor: findings=${findings.length} checks=${checks} seconds=${seconds}`)
    return findings.length === 0 ? 0 : 1
  } finally {
    await knex.destroy()
  }
}

/** A connection of its own: that of the service gives a statement 5 s, and a whole table takes longer. */
function connect(mysqlUrl: string): Knex {
  return knexFactory({
    client: 'mysql2',
    connection: driverOptions(mysqlUrl) as Knex.MySql2ConnectionConfig,
    // What it would print, stack and all, is thrown as well.
    log: { warn: () => {}, error: () => {}, deprecate: () => {}, debug: () => {} },
    pool: {
      min: 1,
      max: 1,
      afterCreate: (connection: { query: Function }, done: Function) => {
        connection.query(SESSION_STATEMENTS[0]!, (first: unknown) => {
          if (first) return done(first, connection)
          connection.query(SESSION_STATEMENTS[1]!, (second: unknown) => done(second, connection))
        })
      },
    },
  })
}

async function readTime(knex: Knex): Promise<Date> {
  try {
    const [rows] = await knex.raw('SELECT UTC_TIMESTAMP(3) AS now')
    return rows[0].now
  } catch (error) {
    throw new StartFault(
      `the database can't be reached (${codeOf(error)}): start it, or set MYSQL_URL to the one to use`,
    )
  }
}

const codeOf = (error: unknown): string => (error as NodeJS.ErrnoException).code ?? (error as Error).name

main().then(
  (code) => process.exit(code),
  (error) => {
    const isExpected = error instanceof ConfigError || error instanceof StartFault
    // A table that is being changed, a server that is stopped: nothing is known of what was not looked at.
    const isBroken = isConnectionFault(error) || isRetriable(error)
    if (isExpected) console.error(`doctor: ${error.message}`)
    else if (isBroken)
      console.error(`doctor: the database failed before everything was looked at (${codeOf(error)}): run it again`)
    else console.error(error)
    process.exit(2)
  },
)
