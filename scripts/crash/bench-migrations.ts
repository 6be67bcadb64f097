/**
 * `make bench-migrations`: every migration that changes a table, on tables that are full, while the service goes on.
 *
 *     node scripts/crash/bench-migrations.ts [--rows 1000000]
 *
 * The tables are made as the first release had them and filled. Then each later migration runs, while four clients do without a
 * pause what API and daemon do to these tables. Printed is what took a tenth of a second or more, and the longest that a
 * statement of a client took meanwhile. About four minutes for a million rows. Exit 1 where a statement waited for longer than a
 * second, or failed.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import knexFactory, { type Knex } from 'knex'
import { createConnection, type Connection } from 'mysql2/promise'
import { driverOptions } from '../../db/connection.ts'
import { listMigrationNames, MIGRATIONS } from '../../db/knexfile.ts'
import { monotonicMs } from '../../src/clock.ts'
import { startLocalDatabase } from '../local-database.ts'

const { values } = parseArgs({ options: { rows: { type: 'string', default: '1000000' } } })
const rows = Number(values.rows)
const say = (line: string) => process.stderr.write(`bench-migrations: ${line}\n`)

/** The tables as they were first; what comes from here on changes tables that may be full. */
const FIRST_CHANGE = '036'
const LONGEST_WAIT_MS = 1000
const SHOWN_FROM_MS = 100
const CLIENTS = 4

const ID = (prefix: string, n = 'seq') => `CONCAT('${prefix}', LPAD(${n}, ${26 - prefix.length}, '0'))`
const NOW = "'2026-11-20 10:00:00'"
const WEBHOOK = ID('w', '1 + seq % 200')

/** By MariaDB's own table of numbers. */
const FILLS: Record<string, string> = {
  entries: `(id, account_id, lab_id, phase, integrator_id, first_name, contact, details, created_at, updated_at)
    SELECT ${ID('e')}, ${ID('a', '1 + seq % 100')}, ${ID('l', '1 + seq % 100')}, 'lead', seq, 'Asha', LPAD(seq, 10, '9'), '{}', ${NOW}, ${NOW}`,
  entry_items: `(entry_id, position, kind, item_id, name) SELECT ${ID('e')}, 0, 'test', ${ID('t')}, 'CBC'`,
  events: `(id, account_id, lab_id, type, recorded_at, subject_id)
    SELECT ${ID('v')}, ${ID('a', '1 + seq % 100')}, ${ID('l', '1 + seq % 100')}, 'lead.created', ${NOW}, ${ID('e')}`,
  event_bodies: `(event_id, body) SELECT ${ID('v')}, REPEAT('x', 300)`,
  unrouted_events: `(event_id) SELECT ${ID('v')}`,
  deliveries: `(webhook_id, event_id, status, attempts, ended_at) SELECT ${WEBHOOK}, ${ID('v')}, 'delivered', 1, ${NOW}`,
  attempts: `(webhook_id, event_id, n, seq, started_at, recorded_at, duration_ms, class, status)
    SELECT ${WEBHOOK}, ${ID('v')}, 1, seq, ${NOW}, ${NOW}, 5, 'ok', 200`,
  delivery_queue: `(webhook_id, due_at, event_id, epoch) SELECT ${WEBHOOK}, ${NOW}, ${ID('v')}, 1`,
  entry_day_guards: `(account_id, day, kind, value_hash, entry_id)
    SELECT ${ID('a', '1 + seq % 100')}, '2026-11-20', 'contact', UNHEX(SHA2(seq, 256)), ${ID('e')}`,
}

/** What API and daemon do, with the columns that were there from the beginning. */
function statementsOf(client: number, n: number): string[] {
  const id = (prefix: string) => `'${prefix}x${client}${String(n).padStart(23, '0')}'`
  return [
    `INSERT INTO entries (id, account_id, lab_id, phase, integrator_id, first_name, details, created_at, updated_at)
     VALUES (${id('e')}, ${id('a')}, ${id('l')}, 'lead', 'x', 'Ravi', '{}', ${NOW}, ${NOW})`,
    `INSERT INTO events (id, account_id, lab_id, type, recorded_at, subject_id)
     VALUES (${id('v')}, ${id('a')}, ${id('l')}, 'lead.created', ${NOW}, ${id('e')})`,
    `INSERT INTO event_bodies (event_id, body) VALUES (${id('v')}, 'x')`,
    `SELECT * FROM entries WHERE id = ${id('e')}`,
    `INSERT INTO deliveries (webhook_id, event_id, status, attempts, ended_at) VALUES (${id('w')}, ${id('v')}, 'pending', 0, ${NOW})`,
    `UPDATE deliveries SET status = 'delivered' WHERE webhook_id = ${id('w')} AND event_id = ${id('v')}`,
  ]
}

class Clients {
  slowestMs = 0
  statements = 0
  readonly faults = new Map<string, number>()
  #isStopping = false
  readonly #running: Promise<void>[]

  constructor(mysqlUrl: string) {
    this.#running = Array.from({ length: CLIENTS }, (_, n) => this.#run(mysqlUrl, n))
  }

  async stop(): Promise<void> {
    this.#isStopping = true
    await Promise.all(this.#running)
  }

  async #run(mysqlUrl: string, client: number): Promise<void> {
    const connection = await createConnection(driverOptions(mysqlUrl))
    for (let n = 0; !this.#isStopping; n++) {
      for (const sql of statementsOf(client, n)) await this.#one(connection, sql)
    }
    await connection.end()
  }

  async #one(connection: Connection, sql: string): Promise<void> {
    const startedAtMs = monotonicMs()
    try {
      await connection.query(sql)
    } catch (error) {
      const { message } = error as Error
      this.faults.set(message, (this.faults.get(message) ?? 0) + 1)
    }
    this.statements++
    this.slowestMs = Math.max(this.slowestMs, monotonicMs() - startedAtMs)
  }
}

async function run(folder: string): Promise<boolean> {
  const server = await startLocalDatabase({ dataDir: folder, redoLogMb: 512, bufferPoolMb: 512 })
  const root = await createConnection({ ...driverOptions(server.mysqlUrl), database: undefined })
  await root.query('CREATE DATABASE lis CHARACTER SET utf8mb4 COLLATE utf8mb4_bin')
  await root.end()
  const knex = knexFactory({
    client: 'mysql2',
    connection: driverOptions(server.mysqlUrl) as Knex.MySql2ConnectionConfig,
  })
  try {
    const names = listMigrationNames()
    for (const name of names.filter((one) => one < FIRST_CHANGE)) await up(name, knex)
    for (const [table, select] of Object.entries(FILLS)) {
      say(`filling ${table}`)
      await knex.raw(`INSERT INTO ${table} ${select} FROM seq_1_to_${rows}`)
    }
    const clients = new Clients(server.mysqlUrl)
    await new Promise((resolve) => setTimeout(resolve, 2000))
    console.log(`without a migration     statements=${clients.statements} slowest=${Math.round(clients.slowestMs)} ms`)
    let slowestMs = 0
    const later = names.filter((one) => one >= FIRST_CHANGE)
    for (const name of later) {
      clients.slowestMs = 0
      const startedAtMs = monotonicMs()
      await up(name, knex)
      const tookMs = monotonicMs() - startedAtMs
      slowestMs = Math.max(slowestMs, clients.slowestMs)
      if (tookMs < SHOWN_FROM_MS) continue
      console.log(
        `${name.padEnd(40)} took=${Math.round(tookMs)} ms, slowest statement meanwhile=${Math.round(clients.slowestMs)} ms`,
      )
    }
    await clients.stop()
    for (const [message, times] of clients.faults) console.log(`FAILED ${times} times: ${message}`)
    console.log(
      `rows=${rows} migrations=${later.length} statements=${clients.statements} slowest=${Math.round(slowestMs)} ms failed=${clients.faults.size}`,
    )
    return slowestMs <= LONGEST_WAIT_MS && clients.faults.size === 0
  } finally {
    await knex.destroy()
    await server.stop()
  }
}

async function up(name: string, knex: Knex): Promise<void> {
  const migration = (await import(join(MIGRATIONS.directory, name))) as { up(knex: Knex): Promise<void> }
  await migration.up(knex)
}

const folder = mkdtempSync(join(tmpdir(), 'lis-migrations-'))
run(folder)
  .catch((error) => {
    console.error(error)
    return false
  })
  .then((isRight) => {
    rmSync(folder, { recursive: true, force: true })
    process.exit(isRight ? 0 : 1)
  })
