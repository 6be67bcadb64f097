/**
 * Servers whose own settings would change what a statement does: each connection sets what it needs for itself, and what no
 * session may set is refused with a sentence.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createConnection, type RowDataPacket } from 'mysql2/promise'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { COMMIT } from '../../db/batch.ts'
import { connectDatabase, driverOptions, isConnectionFault, type Database } from '../../db/connection.ts'
import { listMigrationNames } from '../../db/knexfile.ts'
import { migrate, MigrationFault } from '../../db/migrate.ts'
import { serverSettingFaultsOf } from '../../db/server-settings.ts'
import { startLocalDatabase, type LocalDatabase } from '../../scripts/local-database.ts'
import { createLogger } from '../../src/logger.ts'
import { urlOfDatabase } from '../support/test-server.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const folder = mkdtempSync(join(tmpdir(), 'lis-settings-'))
const log = createLogger('migrate', 'silent')
const LETTERS = 'İß😀'

/** Some that servers really have, and some that nobody should have; all by which a result would be another one. */
const HOSTILE = [
  'autocommit = 0',
  "completion_type = 'CHAIN'",
  'sql_select_limit = 2',
  'sql_safe_updates = 1',
  'group_concat_max_len = 4',
  'max_statement_time = 0.0001',
  'tx_read_only = 1',
  "tx_isolation = 'SERIALIZABLE'",
  "default_storage_engine = 'MyISAM'",
  "innodb_default_row_format = 'compact'",
  "sql_mode = ''",
  "time_zone = '+05:30'",
]

let server: LocalDatabase

beforeAll(async () => {
  server = await startLocalDatabase({
    dataDir: folder,
    redoLogMb: 16,
    bufferPoolMb: 32,
    binlog: true,
    serverArgs: [
      '--character-set-server=latin1',
      '--collation-server=latin1_swedish_ci',
      '--character-set-client-handshake=OFF',
    ],
  })
}, 120_000)
afterAll(async () => {
  await server?.stop()
  rmSync(folder, { recursive: true, force: true })
})

async function setGlobal(...settings: string[]): Promise<void> {
  const connection = await createConnection({ ...driverOptions(server.mysqlUrl), database: undefined })
  for (const setting of settings) await connection.query(`SET GLOBAL ${setting}`)
  await connection.end()
}

describe('a server with other defaults', () => {
  let database: Database
  beforeAll(async () => {
    await setGlobal(...HOSTILE)
    await migrate(server.mysqlUrl, log)
    database = connectDatabase(server.mysqlUrl, 2)
  }, 120_000)
  afterAll(async () => {
    await database?.close()
    await setGlobal(...HOSTILE.map((setting) => setting.replace(/=.*/, '= DEFAULT')))
  })

  test('gets the whole schema, in InnoDB', async () => {
    expect(await database.knex('schema_migrations').pluck('name')).toHaveLength(listMigrationNames().length)
    const [tables] = await database.knex.raw(
      "SELECT engine AS engine FROM information_schema.tables WHERE table_schema = 'lis' AND table_type = 'BASE TABLE'",
    )
    expect(new Set(tables.map((row: RowDataPacket) => row.engine))).toEqual(new Set(['InnoDB']))
  })

  test('keeps what either pool has written, in its own letters, and shows it to the other', async () => {
    await database.knex('migration_guard').update({ beat: 7 })
    await database.knex.raw('CREATE TABLE notes (id INT PRIMARY KEY, text VARCHAR(20)) CHARACTER SET utf8mb4')
    await database.knex('notes').insert({ id: 1, text: LETTERS })
    await database.transaction((trx) => trx('notes').insert({ id: 2, text: LETTERS }))
    await database.batch.transaction((send) =>
      send([{ sql: 'INSERT INTO notes VALUES (3, ?)', values: [LETTERS] }, COMMIT]),
    )
    await database.knex('notes').insert({ id: 4, text: LETTERS })
    // A connection of its own sees what is committed alone.
    const other = connectDatabase(server.mysqlUrl, 1)
    try {
      const rows = await other.knex('notes').orderBy('id')
      expect(rows).toEqual([1, 2, 3, 4].map((id) => ({ id, text: LETTERS })))
      const [[joined]] = await other.knex.raw('SELECT GROUP_CONCAT(text) AS texts, SLEEP(0.01) FROM notes')
      expect(joined.texts).toBe([LETTERS, LETTERS, LETTERS, LETTERS].join())
      // No key in its condition.
      expect(await other.knex('notes').update({ text: 'x' })).toBe(4)
    } finally {
      await other.close()
    }
    // Nothing stays open behind a COMMIT.
    const [open] = await database.knex.raw('SELECT COUNT(*) AS n FROM information_schema.innodb_trx')
    expect(open[0].n).toBe(0)
  })
})

describe('a binary log by statements', () => {
  const REFUSED =
    "the database's binary log can't take this service's writes: set binlog_format = ROW (or MIXED) on it (it is STATEMENT)"
  afterAll(() => setGlobal("binlog_format = 'MIXED'"))

  test('is refused by the migration and by each process', async () => {
    await migrate(server.mysqlUrl, log)
    await setGlobal("binlog_format = 'STATEMENT'")
    const fault = await migrate(urlOfDatabase(server.mysqlUrl, 'another'), log).catch((error) => error)
    expect(fault).toBeInstanceOf(MigrationFault)
    expect(fault.message).toBe(REFUSED)
    for (const script of ['src/server.ts', 'daemon/main.ts']) {
      const child = spawn(process.execPath, [join(ROOT, script)], {
        env: { PATH: process.env.PATH, MYSQL_URL: server.mysqlUrl, DATA_DIR: folder, PORT: '0', DAEMON_PORT: '0' },
        stdio: ['ignore', 'ignore', 'pipe'],
      })
      let errors = ''
      child.stderr.on('data', (chunk) => (errors += chunk))
      const [code] = await once(child, 'close')
      expect([code, errors]).toEqual([1, expect.stringContaining(REFUSED)])
    }
  }, 60_000)

  test('does not matter where there is none, nor do pages of 8 KB; smaller ones do', () => {
    const faults = (values: Record<string, string>) => serverSettingFaultsOf(new Map(Object.entries(values)))
    expect(faults({ log_bin: 'OFF', binlog_format: 'STATEMENT', innodb_page_size: '8192' })).toEqual([])
    expect(faults({ log_bin: 'ON', binlog_format: 'ROW', innodb_page_size: '16384' })).toEqual([])
    expect(faults({ log_bin: 'ON', innodb_page_size: '4096' })).toEqual([expect.stringContaining('innodb_page_size')])
  })
})

test('a server that has become read-only is asked through new connections, which may lead to the one in its place', async () => {
  await migrate(server.mysqlUrl, log)
  const root = await createConnection(driverOptions(server.mysqlUrl))
  await root.query("CREATE USER plain@localhost IDENTIFIED BY 'secret'")
  await root.query('GRANT SELECT, INSERT, UPDATE, DELETE ON lis.* TO plain@localhost')
  await root.end()
  const database = connectDatabase(server.mysqlUrl.replace('//root@', '//plain:secret@'), 1)
  const write = { sql: 'UPDATE migration_guard SET beat = beat + 1 WHERE id = 1' }
  const ID = 'SELECT CONNECTION_ID() AS id'
  const writes = [
    () => database.knex.raw(write.sql),
    () => database.transaction((trx) => trx.raw(write.sql)),
    () => database.batch.transaction((send) => send([write, COMMIT])),
  ]
  const connections = async () => [
    (await database.knex.raw(ID))[0][0].id,
    await database.batch.transaction(async (send) => (await send([{ sql: ID }]))[0]![0]!.id),
  ]
  try {
    for (const refused of writes) {
      const before = await connections()
      await setGlobal('read_only = 1')
      const fault = await refused().catch((error) => error)
      await setGlobal('read_only = 0')
      expect(isConnectionFault(fault) || fault.code === 'unavailable', String(fault?.stack ?? fault)).toBe(true)
      const after = await connections()
      expect(after.filter((id, n) => id === before[n])).toHaveLength(1)
      for (const again of writes) await again()
    }
  } finally {
    await database.close()
  }
})
