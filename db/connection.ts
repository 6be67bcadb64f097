/**
 * Connections to MySQL or MariaDB, the same session settings on each, and the one way to run a transaction.
 */
import knexFactory, { type Knex } from 'knex'
import type { ConnectionOptions } from 'mysql2'
import { monotonicMs } from '../src/clock.ts'
import { DomainError, unavailable } from '../src/errors.ts'
import { createBatchPool, ServerClockMoved, type BatchPool } from './batch.ts'
import { requireTimeToCommit, runBefore, tooLate, withoutDeadline } from './deadline.ts'
import { parseMysqlUrl } from './mysql-url.ts'
import { endWhenReadOnly } from './read-only-connection.ts'
import { SELECT_SERVER_SECONDS } from './server-time.ts'
import { ConnectionWatch, type DriverConnection } from './silent-connection.ts'

/** Deadlock: the server rolled the whole transaction back. Also a cluster's answer to COMMIT. */
const ER_LOCK_DEADLOCK = 1213
/** Lock wait timeout: only the statement was rolled back, so the transaction must be given up as a whole. */
const ER_LOCK_WAIT_TIMEOUT = 1205
/** MySQL: a group of servers took another transaction instead, and rolled this one back at its COMMIT. */
const ER_TRANSACTION_ROLLBACK_DURING_COMMIT = 3101
/**
 * MariaDB with `innodb_snapshot_isolation`, its default since 11.6, which each session switches off: a row that a statement locks was
 * changed since the statement began. Where an older server has been told so, the transaction is run again.
 */
const ER_CHECKREAD = 1020
const ER_DUP_ENTRY = 1062

/** The longest that a request may wait for the database in all, in milliseconds. Then it is answered 503. */
const REQUEST_BUDGET_MS = 4000

/**
 * The longest that one statement waits for a lock, in milliseconds: `innodb_lock_wait_timeout` of every session is 1 s, and
 * MySQL looks for waits that are over once a second only, so that it ends one after up to 2 s.
 */
const LONGEST_LOCK_WAIT_MS = 2200

/** Somebody else takes what is not marked for not done after ten seconds at the earliest. A stop waits for it. */
const MARK_WITHIN_MS = 6000

export interface Database {
  knex: Knex
  batch: BatchPool
  /** Runs again on a deadlock or a lock wait timeout; gives up with 503 when the request's time is over. */
  transaction<T>(work: (trx: Knex.Transaction) => Promise<T>): Promise<T>
  /** The database's UTC time in milliseconds. */
  readTimeMs(): Promise<number>
  close(): Promise<void>
}

/** What every connection has in common: UTC, exact bytes, numbers for decimals, no silent truncation. */
export function driverOptions(mysqlUrl: string): ConnectionOptions {
  return {
    ...parseMysqlUrl(mysqlUrl),
    timezone: 'Z',
    charset: 'utf8mb4_bin',
    decimalNumbers: true,
    connectTimeout: 2000,
    // We prepare none. Room for its 16,000 is made for each connection, half a megabyte.
    maxPreparedStatements: 1,
  }
}

/**
 * Run on every new connection, before its first use. Whatever a server's own defaults, or its init_connect, would make of a
 * statement's meaning is set here: with autocommit off an answer would be no promise, and with another completion_type, a
 * limit of rows, unchecked keys or a shorter GROUP_CONCAT a result would be another one. None of it needs a right.
 */
export const SESSION_STATEMENTS = [
  // NAMES: a server that takes no character set from its clients would read and store other letters.
  `SET NAMES utf8mb4 COLLATE utf8mb4_bin, autocommit=1, completion_type=0, time_zone='+00:00', innodb_lock_wait_timeout=1,
    sql_mode='STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO,ONLY_FULL_GROUP_BY', default_storage_engine=InnoDB,
    foreign_key_checks=1, unique_checks=1, sql_auto_is_null=0, sql_safe_updates=0, sql_big_selects=1,
    sql_select_limit=18446744073709551615, group_concat_max_len=1048576
    /*!80000 , max_execution_time=0 */ /*M! , max_statement_time=0 */ /*M!110602 , innodb_snapshot_isolation=0 */`,
  'SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE',
  // A client that is gone without a word must not keep its locks. MySQL has nothing for open transactions alone; there the
  // connection goes after two minutes of silence.
  'SET wait_timeout=120 /*M!100301 , idle_transaction_timeout=5 */',
]

/**
 * @param poolSize connections of each of the two pools (knex, batch)
 */
export function connectDatabase(mysqlUrl: string, poolSize = 10): Database {
  const options = driverOptions(mysqlUrl)
  const watch = new ConnectionWatch()
  const knex = knexFactory({
    client: 'mysql2',
    connection: options as Knex.MySql2ConnectionConfig,
    // It would write to stdout, past the logger and its allow list; what matters of it is thrown as well.
    log: { warn: () => {}, error: () => {}, deprecate: () => {}, debug: () => {} },
    pool: {
      min: 0,
      max: poolSize,
      acquireTimeoutMillis: REQUEST_BUDGET_MS - 500,
      createTimeoutMillis: 2500,
      afterCreate: (connection: DriverConnection, done: (error: unknown, connection: unknown) => void) => {
        watch.add(connection)
        endWhenReadOnly(connection)
        const prepare = (n: number) => {
          if (n === SESSION_STATEMENTS.length) return done(null, connection)
          connection.query(SESSION_STATEMENTS[n], (fault: unknown) =>
            fault ? done(fault, connection) : prepare(n + 1),
          )
        }
        prepare(0)
      },
    },
  })
  const batch = createBatchPool(options, SESSION_STATEMENTS, poolSize, watch)
  return {
    knex,
    batch,
    transaction: (work) =>
      withinBudget(() =>
        knex.transaction(async (trx) => {
          const result = await work(trx)
          // Refused here it is rolled back, as its caller is told.
          requireTimeToCommit()
          return result
        }),
      ),
    readTimeMs: async () => {
      const [rows] = await knex.raw(SELECT_SERVER_SECONDS)
      return Math.round(Number(rows[0].seconds) * 1000)
    },
    close: async () => {
      await Promise.all([knex.destroy(), batch.close()])
    },
  }
}

/**
 * Runs `work` again while the database says that another transaction was in its way. What is not committed when the time is
 * over is not committed any more.
 * @throws 503 when the time of a request is over, or what `work` throws
 */
export function withinBudget<T>(work: () => Promise<T>): Promise<T> {
  return runBefore(monotonicMs() + REQUEST_BUDGET_MS, (deadline) => repeat(work, deadline))
}

async function repeat<T>(work: () => Promise<T>, deadline: number): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await beforeDeadline(work(), deadline)
    } catch (error) {
      if (isConnectionFault(error)) throw unavailable('the database does not answer; try again shortly', 1, error)
      if (!isRetriable(error)) throw error
      // A further try could wait for a lock until after the deadline, and be refused then.
      if (monotonicMs() + LONGEST_LOCK_WAIT_MS >= deadline)
        throw unavailable('the database is busy; try again shortly', 1, error)
      // A short, growing, random wait: two transactions that met once don't meet again at once.
      await new Promise((resolve) => setTimeout(resolve, Math.random() * Math.min(5 * attempt, 50)))
    }
  }
}

/**
 * Marks what has happened outside of the database, where it would happen again without the mark: tried again, whatever keeps
 * the database from it, for as long as that may still help. Nobody's deadline ends it. The same mark may be made twice.
 */
export async function insistOnMark(mark: () => Promise<void>): Promise<void> {
  const untilMs = monotonicMs() + MARK_WITHIN_MS
  for (let waitMs = 50; ; waitMs *= 2) {
    try {
      return await withoutDeadline(() => withinBudget(mark))
    } catch (error) {
      const isUnavailable = error instanceof DomainError && error.kind === 'unavailable'
      if (!isUnavailable || monotonicMs() + waitMs >= untilMs) throw error
      await new Promise((resolve) => setTimeout(resolve, waitMs))
    }
  }
}

/** The time that one request may wait for the database, over everything that it does with it. */
export class DatabaseBudget {
  #leftMs = REQUEST_BUDGET_MS

  /** @throws 503 when the time is over before `work` ends, or what `work` throws */
  async spend<T>(work: () => Promise<T>): Promise<T> {
    const startedAt = monotonicMs()
    try {
      return await runBefore(startedAt + this.#leftMs, (deadline) => beforeDeadline(work(), deadline))
    } finally {
      this.#leftMs -= monotonicMs() - startedAt
    }
  }
}

async function beforeDeadline<T>(work: Promise<T>, deadline: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    // An answer that has come while the process was busy is read first: it may be that of a COMMIT.
    const isOver = () => setImmediate(() => reject(tooLate()))
    timer = setTimeout(isOver, Math.max(0, deadline - monotonicMs()))
  })
  try {
    return await Promise.race([work, late])
  } finally {
    clearTimeout(timer)
  }
}

const RETRIABLE_ERRNOS = new Set([
  ER_LOCK_DEADLOCK,
  ER_LOCK_WAIT_TIMEOUT,
  ER_TRANSACTION_ROLLBACK_DURING_COMMIT,
  ER_CHECKREAD,
])

/** Whether the whole transaction should be run again. */
export function isRetriable(error: unknown): boolean {
  return RETRIABLE_ERRNOS.has(errnoOf(error) ?? 0) || error instanceof ServerClockMoved
}

/** Whether the statement waited for another transaction's lock for as long as one may. */
export function isLockWaitTimeout(error: unknown): boolean {
  return errnoOf(error) === ER_LOCK_WAIT_TIMEOUT
}

/** Whether a unique key refused the row. By number: the two servers name it differently. */
export function isDuplicate(error: unknown): boolean {
  return errnoOf(error) === ER_DUP_ENTRY
}

/**
 * Whether it is the database's fault and not the statement's: it could not be reached, the connection broke, no connection
 * was free in time, or the server can't do its work at the moment. The same statement may well succeed later.
 */
export function isConnectionFault(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  const { code, name, fatal, syscall } = error as NodeJS.ErrnoException & { fatal?: boolean }
  if (name === 'KnexTimeoutError' || SERVER_ERRNOS.has(errnoOf(error) ?? 0)) return true
  // What the driver says to a statement for a connection that has ended has no code. In place of the fault that ended it knex
  // throws this one, of its ROLLBACK.
  if (fatal === true && code === undefined) return true
  return CONNECTION_CODES.has(code ?? '') || (syscall === 'connect' && CONNECT_CODES.has(code ?? ''))
}

/**
 * Whether it was too much at once for the database: too many locks, or longer than a statement may take there. Less of the same
 * may well go through.
 */
export function isTooMuch(error: unknown): boolean {
  const errno = errnoOf(error)
  return errno === ER_LOCK_TABLE_FULL || STATEMENT_TIMEOUTS.includes(errno ?? 0)
}

/** Too many locks. */
const ER_LOCK_TABLE_FULL = 1206
/** Of MariaDB and MySQL: a statement was interrupted for the time that it took. */
const STATEMENT_TIMEOUTS = [1969, 3024]

/** Numbers that both servers share, but for those that name one. */
const SERVER_ERRNOS = new Set([
  1021, // disk full
  1026, // error on write
  1030, // error from the storage engine
  1037, 1041, 1135, // out of memory
  1045, 1524, 1698, // its user or password was changed, and this process does not know
  1047, // Galera: this node is not ready
  1129, // it answers this host no more, after too many broken connections
  1158, 1159, 1160, 1161, 1184, // it could not read or write the connection
  1114, // a table can't grow: the disk is full
  1180, // error while it committed
  1203, 1226, // too many connections or statements of this user
  1637, // too many transactions at a time
  ER_LOCK_TABLE_FULL,
  1290, 1836, // read-only, as a server is that has handed over to another
  1317, // interrupted by the server's end
  ...STATEMENT_TIMEOUTS,
  1412, // the table is being changed
  1927, // MariaDB: the connection was killed
  3100, 3168, // MySQL: the group of servers did not take the COMMIT, the server is not available
  4031, // MySQL: closed by the server for its silence
]) // prettier-ignore

const CONNECTION_CODES = new Set([
  'ECONNREFUSED', 'ECONNRESET', 'ENOENT', 'EPIPE', 'ETIMEDOUT', 'EHOSTUNREACH', 'ENETUNREACH', 'PROTOCOL_CONNECTION_LOST',
  'ENETDOWN', 'ECONNABORTED', 'EADDRNOTAVAIL', 'EMFILE', 'ENFILE', 'PROTOCOL_SEQUENCE_TIMEOUT', 'ER_SERVER_SHUTDOWN',
  'ER_CON_COUNT_ERROR', 'POOL_CLOSED', 'HANDSHAKE_SSL_ERROR', 'HANDSHAKE_NO_SSL_SUPPORT',
  // EAGAIN: the queue of its Unix socket is full, while it stands still.
  'EAGAIN', 'ENOBUFS', 'EHOSTDOWN',
  // The name of its host, as long as a container that bears it is started anew.
  'ENOTFOUND', 'EAI_AGAIN',
  // Of a connection that was given up: a ROLLBACK that was not sent any more.
  'ERR_STREAM_DESTROYED',
]) // prettier-ignore

/** Only of a connect: a local firewall, or the rights on the socket. A file may say the same, which is no fault of the database. */
const CONNECT_CODES = new Set(['EACCES', 'EPERM', 'ENOMEM'])

function errnoOf(error: unknown): number | undefined {
  return (error as { errno?: number } | null)?.errno
}
