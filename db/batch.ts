/**
 * Several statements in one round trip. The one place that does so: lead/create, fan-out and the recorder, where the
 * round trips are what costs. Values go through the driver's escaping only.
 */
import type { Knex } from 'knex'
import {
  createPool,
  type ConnectionOptions,
  type Pool,
  type PoolConnection,
  type ResultSetHeader,
  type RowDataPacket,
} from 'mysql2'

export interface Statement {
  sql: string
  values?: unknown[]
}

/** A statement's rows, or what it changed. */
export type BatchResult = RowDataPacket[] & ResultSetHeader

/** Sends statements in one round trip, in order; the first that fails ends them, and the transaction is rolled back. */
export type Send = (statements: Statement[]) => Promise<BatchResult[]>

export interface BatchPool {
  /** One transaction of one or more round trips. BEGIN goes along with the first statements; COMMIT is the caller's last one. */
  transaction<T>(work: (send: Send) => Promise<T>): Promise<T>
  close(): Promise<void>
}

/** For what is used in both kinds of transaction: each statement is a round trip of its own. */
export function sendThrough(trx: Knex.Transaction): Send {
  return async (statements) => {
    const results: BatchResult[] = []
    for (const { sql, values } of statements) results.push((await trx.raw(sql, values as Knex.RawBinding[]))[0])
    return results
  }
}

export const COMMIT: Statement = { sql: 'COMMIT' }

export function createBatchPool(options: ConnectionOptions, sessionStatements: string[], poolSize: number): BatchPool {
  const pool: Pool = createPool({
    ...options,
    multipleStatements: true,
    connectionLimit: poolSize,
    maxIdle: poolSize,
    idleTimeout: 60_000,
  })
  const prepared = new WeakSet<PoolConnection>()

  async function query(connection: PoolConnection, sql: string): Promise<unknown> {
    return new Promise((resolve, reject) => {
      connection.query(sql, (error, results) => (error ? reject(error) : resolve(results)))
    })
  }

  async function acquire(): Promise<PoolConnection> {
    const connection = await new Promise<PoolConnection>((resolve, reject) => {
      pool.getConnection((error, got) => (error ? reject(error) : resolve(got)))
    })
    if (!prepared.has(connection)) {
      try {
        await query(connection, sessionStatements.join(';'))
      } catch (error) {
        connection.destroy()
        throw error
      }
      prepared.add(connection)
    }
    return connection
  }

  async function transaction<T>(work: (send: Send) => Promise<T>): Promise<T> {
    const connection = await acquire()
    let begun = false
    let committed = false
    const send: Send = async (statements) => {
      const texts = statements.map(({ sql, values }) => (values ? connection.format(sql, values) : sql))
      if (!begun) texts.unshift('START TRANSACTION')
      const first = begun ? 0 : 1
      begun = true
      const results = await query(connection, texts.join(';\n'))
      if (statements.at(-1)?.sql === 'COMMIT') committed = true
      return (texts.length === 1 ? [results] : (results as unknown[]).slice(first)) as BatchResult[]
    }
    try {
      const result = await work(send)
      if (begun && !committed) await query(connection, 'ROLLBACK')
      connection.release()
      return result
    } catch (error) {
      // The transaction may still be open and hold locks. When even ROLLBACK fails the connection is of no more use.
      await query(connection, 'ROLLBACK').then(
        () => connection.release(),
        () => connection.destroy(),
      )
      throw error
    }
  }

  return {
    transaction,
    close: () => new Promise((resolve) => pool.end(() => resolve())),
  }
}
