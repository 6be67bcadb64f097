/**
 * A migrated database for one test file, on the server of the run.
 */
import { inject } from 'vitest'
import { connectDatabase, type Database } from '../../db/connection.ts'
import { requireSound } from './last-look.ts'
import { newDatabaseName, urlOfDatabase, withServer } from './test-server.ts'

export interface TestDatabase {
  database: Database
  /** For child processes. */
  mysqlUrl: string
  /**
   * Closes the connections and drops the database.
   * @throws when the doctor finds something in it, or somebody still holds a transaction open
   */
  close(): Promise<void>
}

export async function openTestDatabase(): Promise<TestDatabase> {
  const { mysqlUrl, drop } = await createEmptyDatabase()
  const { schema } = inject('testServer')
  await withServer(mysqlUrl, async (connection) => {
    await connection.query([`USE ${new URL(mysqlUrl).pathname.slice(1)}`, ...schema].join(';\n'))
  })
  const database = connectDatabase(mysqlUrl)
  return {
    database,
    mysqlUrl,
    close: async () => {
      try {
        await requireSound(database)
      } finally {
        await database.close()
        await drop()
      }
    },
  }
}

/** For tests of the migrations themselves: nothing in it. */
export async function createEmptyDatabase(): Promise<{ mysqlUrl: string; drop(): Promise<void> }> {
  const server = inject('testServer')
  const name = newDatabaseName(server.prefix)
  await withServer(server.mysqlUrl, (connection) =>
    connection.query(`CREATE DATABASE ${name} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`),
  )
  return {
    mysqlUrl: urlOfDatabase(server.mysqlUrl, name),
    drop: async () => {
      await withServer(server.mysqlUrl, (connection) => connection.query(`DROP DATABASE IF EXISTS ${name}`))
    },
  }
}
