/**
 * Several statements in one round trip. The one place that does so: lead/create, fan-out and the recorder, where the
 * round trips are what costs. Values go through the driver's escaping only.
 */
import type { Knex } from 'knex'
import { monotonicMs } from '../src/clock.ts'
import { lastCommitAtMs, requireTimeToCommit, tooLate } from './deadline.ts'
import { endWhenReadOnly } from './read-only-connection.ts'
import { microsecondsOf, TIME_WHEN_REACHED } from './server-time.ts'
import type { ConnectionWatch } from './silent-connection.ts'
import {
  createPool,
  escape,
  format,
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

/**
 * Sends statements in one round trip, in order; the first that fails ends them, and the transaction is rolled back. A batch's are on
 * their way when it returns.
 */
export type Send = (statements: Statement[]) => Promise<BatchResult[]>

export interface BatchPool {
  /** One transaction of one or more round trips. The first statement begins it; COMMIT is the caller's last one. */
  transaction<T>(work: (send: Send) => Promise<T>): Promise<T>
  /** How often one had to wait for a connection so far. */
  waits(): number
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

/** Stands in a statement as it is, where values are escaped: never made of anything from outside. */
export interface SqlText {
  toSqlString(): string
}

export function sqlText(sql: string): SqlText {
  return { toSqlString: () => sql }
}

/**
 * Ids as one value, for `IN (?)`: escaped in one piece, where the driver would escape each of hundreds.
 * A comma in one of them would make two of it, and change nothing else.
 */
export function idList(ids: string[]): SqlText {
  return { toSqlString: () => escape(ids.join()).replaceAll(',', "','") }
}

export const COMMIT: Statement = { sql: 'COMMIT' }

/** The first statement behind a COMMIT or ROLLBACK begins a transaction: to say so is one statement more to be answered. */
const BEGINS_BY_ITSELF = 'SET autocommit=0'

/** How long a connection's view of the server's clock serves, in milliseconds. */
const CLOCK_VIEW_MS = 10_000
/** The server's own time, also where a session has set its timestamp. */
const CLOCK = TIME_WHEN_REACHED
const CLOCK_MICROSECONDS = microsecondsOf(CLOCK)
/** What the server answers where an unsigned subtraction falls below zero. */
const ER_DATA_OUT_OF_RANGE = 1690

/** The server's clock was set while a batch was under way, and says that it is too late; another try looks at it again. */
export class ServerClockMoved extends Error {}

/**
 * A node of a Galera cluster that rolls a transaction back for one of the cluster's own (a change of a table, a write through another
 * node) says so to the statement that it meets, and goes on with the next of the same packet: what stands behind it would be
 * committed without what stands before.
 */
const IS_GALERA = `SHOW VARIABLES WHERE Variable_name = 'wsrep_on' AND Value = 'ON'`

/** A connection's view of the server's clock. */
interface ClockView {
  /** Server's time less ours, in milliseconds. */
  offsetMs: number
  readAtMs: number
}

export function createBatchPool(
  options: ConnectionOptions,
  sessionStatements: string[],
  poolSize: number,
  watch: ConnectionWatch,
): BatchPool {
  const pool: Pool = createPool({
    ...options,
    multipleStatements: true,
    connectionLimit: poolSize,
    maxIdle: poolSize,
    idleTimeout: 60_000,
    // What is sent has its values already. The driver would search all of it for places to put some, letter by letter.
    queryFormat: (sql: string) => sql,
  })
  let waits = 0
  pool.on('enqueue', () => (waits += 1))
  /** Whether each statement has to be a packet of its own there. */
  const prepared = new WeakMap<PoolConnection, { isApart: boolean }>()
  const clocks = new WeakMap<PoolConnection, ClockView>()

  async function query(connection: PoolConnection, sql: string): Promise<unknown> {
    return new Promise((resolve, reject) => {
      connection.query(sql, (error, results) => (error ? reject(error) : resolve(results)))
    })
  }

  /** @returns what each of them has brought; the first that fails ends them */
  async function queryAll(connection: PoolConnection, texts: string[]): Promise<BatchResult[]> {
    if (texts.length > 1 && !prepared.get(connection)!.isApart) {
      return (await query(connection, texts.join(';\n'))) as BatchResult[]
    }
    const results: BatchResult[] = []
    for (const text of texts) results.push((await query(connection, text)) as BatchResult)
    return results
  }

  async function acquire(): Promise<PoolConnection> {
    const connection = await new Promise<PoolConnection>((resolve, reject) => {
      pool.getConnection((error, got) => (error ? reject(error) : resolve(got)))
    })
    try {
      if (!prepared.has(connection)) {
        watch.add(connection)
        endWhenReadOnly(connection)
        const statements = [...sessionStatements, IS_GALERA, BEGINS_BY_ITSELF]
        const results = (await query(connection, statements.join(';'))) as BatchResult[]
        prepared.set(connection, { isApart: results.at(-2)!.length > 0 })
      }
      await readClock(connection)
    } catch (error) {
      connection.destroy()
      throw error
    }
    try {
      // Others may have had the connections for so long that nobody waits for this one any more.
      requireTimeToCommit()
    } catch (error) {
      connection.release()
      throw error
    }
    return connection
  }

  /** For batches that somebody waits for: their COMMIT is told until when it may go through. */
  async function readClock(connection: PoolConnection): Promise<void> {
    const askedAtMs = monotonicMs()
    if (lastCommitAtMs() === Infinity || askedAtMs - (clocks.get(connection)?.readAtMs ?? -Infinity) < CLOCK_VIEW_MS)
      return
    const rows = (await query(connection, `SELECT ${CLOCK_MICROSECONDS} AS microseconds`)) as RowDataPacket[]
    const readAtMs = monotonicMs()
    // Taken for as late as it may be: a slow answer makes the fence stricter, never laxer.
    const offsetMs = Number(rows[0]!.microseconds) / 1000 - readAtMs
    clocks.set(connection, { offsetMs, readAtMs })
  }

  /**
   * Goes before the COMMIT of the same round trip: ends the batch with an error when the server gets to it after the
   * deadline, however long it waited for locks, or was stopped, on the way.
   */
  function fence(connection: PoolConnection): string[] {
    const view = clocks.get(connection)
    const last = lastCommitAtMs()
    if (last === Infinity || !view) return []
    const microseconds = Math.round((last + view.offsetMs) * 1000)
    return [`SET @microseconds_left = CAST(${microseconds} AS UNSIGNED) - CAST(${CLOCK_MICROSECONDS} AS UNSIGNED)`]
  }

  /** What a failed batch is to its caller: a fence that fails while there is time says that the server's clock was set. */
  function meaningOf(error: unknown, connection: PoolConnection): unknown {
    const { errno, message } = error as { errno?: number; message: string }
    if (errno !== ER_DATA_OUT_OF_RANGE || !message.includes(CLOCK) || lastCommitAtMs() === Infinity) return error
    clocks.delete(connection)
    return monotonicMs() > lastCommitAtMs() ? tooLate() : new ServerClockMoved()
  }

  function textOf({ sql, values }: Statement): string {
    return values ? format(sql, values as Parameters<typeof format>[1], false, options.timezone) : sql
  }

  async function transaction<T>(work: (send: Send) => Promise<T>): Promise<T> {
    const connection = await acquire()
    let begun = false
    let committed = false
    const send: Send = async (statements) => {
      const texts = statements.map(textOf)
      begun = true
      const commits = statements.at(-1)?.sql === COMMIT.sql
      const fences = commits ? fence(connection) : []
      texts.splice(-1, 0, ...fences)
      const results = await queryAll(connection, texts)
      if (commits) committed = true
      return fences.length === 0 ? results : results.toSpliced(-1 - fences.length, fences.length)
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
      throw meaningOf(error, connection)
    }
  }

  return {
    transaction,
    waits: () => waits,
    close: () => new Promise((resolve) => pool.end(() => resolve())),
  }
}
