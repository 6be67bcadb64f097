/**
 * The one database server of a test run, and databases on it.
 */
import { randomBytes } from 'node:crypto'
import { createConnection, type Connection, type RowDataPacket } from 'mysql2/promise'
import { driverOptions } from '../../db/connection.ts'
import { migrate } from '../../db/migrate.ts'
import { createLogger } from '../../src/logger.ts'

export interface TestServer {
  /** Of the server; the database that it names is not touched. */
  mysqlUrl: string
  /** Every database of this run begins with it. */
  prefix: string
  /** What an empty database needs to be a migrated one: replayed, because that is quicker than migrating each time. */
  schema: string[]
}

/** What tells that the schema is applied; without these rows it would be applied again. */
const BOOKKEEPING_TABLES = ['schema_migrations', 'schema_migrations_lock', 'migration_guard']

/** The same server, another database. */
export function urlOfDatabase(mysqlUrl: string, database: string): string {
  const url = new URL(mysqlUrl)
  url.pathname = `/${database}`
  return url.href
}

export async function withServer<T>(mysqlUrl: string, work: (connection: Connection) => Promise<T>): Promise<T> {
  const connection = await createConnection({
    ...driverOptions(mysqlUrl),
    database: undefined,
    multipleStatements: true,
  })
  try {
    // A test that leaks an open transaction must fail at the drop, not hang.
    await connection.query("SET lock_wait_timeout=5, time_zone='+00:00'")
    return await work(connection)
  } finally {
    await connection.end()
  }
}

export function newDatabaseName(prefix: string): string {
  return `${prefix}${randomBytes(5).toString('hex')}`
}

/** Migrates once and takes down what came of it. */
export async function prepareTestServer(mysqlUrl: string): Promise<TestServer> {
  const prefix = `lis_test_${randomBytes(4).toString('hex')}_`
  const template = newDatabaseName(prefix)
  await migrate(urlOfDatabase(mysqlUrl, template), createLogger('migrate', 'warn'))
  const schema = await withServer(mysqlUrl, async (connection) => {
    await connection.query(`USE ${template}`)
    const statements: string[] = []
    const views: string[] = []
    const [tables] = await connection.query<RowDataPacket[]>('SHOW TABLES')
    for (const name of tables.map((row) => String(Object.values(row)[0]))) {
      const [[row]] = await connection.query<RowDataPacket[]>('SHOW CREATE TABLE ??', [name])
      if (row!['Create View']) {
        views.push(row!['Create View'])
        continue
      }
      statements.push(row!['Create Table'])
      if (!BOOKKEEPING_TABLES.includes(name)) continue
      const [rows] = await connection.query<RowDataPacket[]>('SELECT * FROM ??', [name])
      for (const values of rows) statements.push(connection.format('INSERT INTO ?? SET ?', [name, values]))
    }
    await connection.query(`DROP DATABASE ${template}`)
    // Behind the tables that they read.
    return [...statements, ...views]
  })
  return { mysqlUrl, prefix, schema }
}

/** Drops what tests of this run left behind, such as one that was killed. */
export async function dropDatabasesOfRun({ mysqlUrl, prefix }: TestServer): Promise<void> {
  await withServer(mysqlUrl, async (connection) => {
    const [rows] = await connection.query<RowDataPacket[]>('SHOW DATABASES')
    for (const name of rows.map((row) => String(row.Database)).filter((text) => text.startsWith(prefix))) {
      await connection.query(`DROP DATABASE IF EXISTS ${name}`)
    }
  })
}
