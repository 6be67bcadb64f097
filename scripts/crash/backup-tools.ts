/**
 * The commands of the README's chapter on backups, as the drill runs them, and what tells two servers apart.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createReadStream, createWriteStream } from 'node:fs'
import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { createConnection, type RowDataPacket } from 'mysql2/promise'
import { driverOptions } from '../../db/connection.ts'
import { parseMysqlUrl } from '../../db/mysql-url.ts'
import type { DatabaseTools } from '../database-tools.ts'

/** As in the README. `--master-data=2` writes the position of the binary log into the dump, as a comment. */
const DUMP_OPTIONS = [
  ...['--single-transaction', '--master-data=2', '--no-tablespaces', '--skip-add-locks', '--hex-blob'],
  '--default-character-set=utf8mb4',
]

/** As in the README: it may read, and see where the binary log stands. */
const BACKUP_USER = [
  'CREATE USER lis_backup@localhost',
  'GRANT RELOAD, REPLICATION CLIENT ON *.* TO lis_backup@localhost',
  'GRANT SELECT, SHOW VIEW, TRIGGER ON lis.* TO lis_backup@localhost',
]

export class BackupTools {
  readonly #tools: DatabaseTools

  constructor(tools: DatabaseTools) {
    this.#tools = tools
  }

  async dump(mysqlUrl: string, file: string): Promise<void> {
    const { database } = parseMysqlUrl(mysqlUrl)
    for (const sql of BACKUP_USER) await execute(mysqlUrl, sql)
    const asBackup = new URL(mysqlUrl)
    asBackup.username = 'lis_backup'
    const child = this.#spawn('mariadb-dump', [...connectionOf(asBackup.href), ...DUMP_OPTIONS, database!])
    await Promise.all([pipeline(child.stdout!, createWriteStream(file)), ended(child, 'mariadb-dump')])
  }

  /** Into a fresh, empty database. */
  async restore(mysqlUrl: string, file: string): Promise<void> {
    const { database } = parseMysqlUrl(mysqlUrl)
    await execute(mysqlUrl, `CREATE DATABASE ${database} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`)
    await this.#load(mysqlUrl, createReadStream(file))
  }

  /** @param files of the binary log, in order; the first from the position on */
  async applyBinlog(mysqlUrl: string, files: string[], position: number): Promise<void> {
    const { database } = parseMysqlUrl(mysqlUrl)
    const args = ['--no-defaults', `--start-position=${position}`, `--database=${database}`, ...files]
    const child = this.#spawn('mariadb-binlog', args)
    await Promise.all([this.#load(mysqlUrl, child.stdout!), ended(child, 'mariadb-binlog')])
  }

  async #load(mysqlUrl: string, source: Readable): Promise<void> {
    const { database } = parseMysqlUrl(mysqlUrl)
    const child = this.#spawn('mariadb', [...connectionOf(mysqlUrl), '--binary-mode', database!])
    await Promise.all([pipeline(source, child.stdin!), ended(child, 'mariadb')])
  }

  #spawn(name: 'mariadb' | 'mariadb-dump' | 'mariadb-binlog', args: string[]) {
    return spawn(this.#tools[name], args, { env: this.#tools.env, stdio: ['pipe', 'pipe', 'pipe'] })
  }
}

function connectionOf(mysqlUrl: string): string[] {
  const { user, socketPath } = parseMysqlUrl(mysqlUrl)
  return ['--no-defaults', `--user=${user}`, `--socket=${socketPath}`]
}

/** @throws with what it said when it failed */
async function ended(child: ReturnType<typeof spawn>, name: string): Promise<void> {
  let errors = ''
  child.stderr!.on('data', (chunk) => (errors += chunk))
  const [code] = await once(child, 'close')
  if (code !== 0) throw new Error(`${name} ended with ${code}: ${errors.trim()}`)
}

/** Of the binary log at the dump's view, as the dump itself says it. */
export async function binlogPosition(dumpFile: string): Promise<{ file: string; at: number }> {
  const lines = createInterface({ input: createReadStream(dumpFile) })
  for await (const line of lines) {
    const found = /CHANGE MASTER TO MASTER_LOG_FILE='([^']+)', MASTER_LOG_POS=(\d+)/.exec(line)
    if (found) return { file: found[1]!, at: Number(found[2]) }
  }
  throw new Error('the dump does not say where the binary log stood')
}

/** Of every table, over all its rows. */
export async function checksums(mysqlUrl: string): Promise<Map<string, string>> {
  const tables = await query(mysqlUrl, "SHOW FULL TABLES WHERE Table_type = 'BASE TABLE'")
  const names = tables.map((row) => `\`${String(Object.values(row)[0])}\``)
  const rows = await query(mysqlUrl, `CHECKSUM TABLE ${names.join(', ')}`)
  return new Map(rows.map((row) => [String(row.Table).split('.')[1]!, String(row.Checksum)]))
}

/** Names of tables that are not equal, and how many were compared. */
export function differing(wanted: Map<string, string>, got: Map<string, string>): string[] & { tables: number } {
  const names = [...new Set([...wanted.keys(), ...got.keys()])]
  return Object.assign(
    names.filter((name) => wanted.get(name) !== got.get(name)),
    { tables: names.length },
  )
}

async function query(mysqlUrl: string, sql: string): Promise<RowDataPacket[]> {
  const connection = await createConnection(driverOptions(mysqlUrl))
  try {
    return (await connection.query<RowDataPacket[]>(sql))[0]
  } finally {
    await connection.end()
  }
}

async function execute(mysqlUrl: string, sql: string): Promise<void> {
  const connection = await createConnection({ ...driverOptions(mysqlUrl), database: undefined })
  try {
    await connection.query(sql)
  } finally {
    await connection.end()
  }
}
