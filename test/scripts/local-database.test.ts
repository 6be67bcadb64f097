import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { createConnection, type RowDataPacket } from 'mysql2/promise'
import { driverOptions } from '../../db/connection.ts'
import { installAdvice } from '../../scripts/database-server.ts'
import { startLocalDatabase, type LocalDatabase, type LocalDatabaseOptions } from '../../scripts/local-database.ts'
import { superviseLocalDatabase } from '../../scripts/local-database-supervisor.ts'
import { StartFault } from '../../scripts/processes.ts'

const folder = mkdtempSync(join(tmpdir(), 'lis-local-database-'))
const running: { stop(): Promise<void> }[] = []

async function start(options: Partial<LocalDatabaseOptions> = {}): Promise<LocalDatabase> {
  const database = await startLocalDatabase({ dataDir: folder, redoLogMb: 16, bufferPoolMb: 32, ...options })
  running.push(database)
  return database
}

async function query(mysqlUrl: string, sql: string): Promise<RowDataPacket[]> {
  const connection = await createConnection({ ...driverOptions(mysqlUrl), database: 'mysql' })
  try {
    const [rows] = await connection.query<RowDataPacket[]>(sql)
    return rows
  } finally {
    await connection.end()
  }
}

beforeAll(async () => {
  const database = await start()
  await query(database.mysqlUrl, 'CREATE DATABASE kept')
  await query(database.mysqlUrl, 'CREATE TABLE kept.notes (text VARCHAR(20)) ENGINE=InnoDB')
  await query(database.mysqlUrl, "INSERT INTO kept.notes VALUES ('first')")
  await database.stop()
})

afterEach(async () => {
  for (const database of running.splice(0)) await database.stop()
})

afterAll(() => rmSync(folder, { recursive: true, force: true }))

test('a stopped server is gone with its socket, and the next start keeps the data', async () => {
  expect(existsSync(join(folder, 'mysql.sock'))).toBe(false)
  const database = await start()
  expect(await query(database.mysqlUrl, 'SELECT text FROM kept.notes')).toEqual([{ text: 'first' }])
  await database.stop()
  expect(await database.ended).toBe('code 0')
  await expect(query(database.mysqlUrl, 'SELECT 1')).rejects.toThrow(/ENOENT|ECONNREFUSED/)
})

test('a first start in a folder whose name has spaces serves, whoever starts it', async () => {
  const dataDir = join(folder, 'a folder', 'of mine')
  mkdirSync(dataDir, { recursive: true })
  const database = await start({ dataDir })
  expect(await query(database.mysqlUrl, 'SELECT 1 AS one')).toEqual([{ one: 1 }])
})

test('what the last run has noted of its server, and was cut off, keeps no server from starting', async () => {
  const note = join(folder, 'mysql.version')
  writeFileSync(note, '')
  await start()
  expect(readFileSync(note, 'utf8')).toMatch(/^\d+\.\d+.*\n$/)
})

test('the server is durable, in UTC, READ COMMITTED, and only its owner reaches it', async () => {
  const database = await start()
  const [row] = await query(
    database.mysqlUrl,
    `SELECT @@global.time_zone AS zone, @@global.tx_isolation AS isolation, @@skip_networking AS local,
      @@innodb_flush_log_at_trx_commit AS flush, @@character_set_server AS charset`,
  )
  expect(row).toEqual({ zone: '+00:00', isolation: 'READ-COMMITTED', local: 1, flush: 1, charset: 'utf8mb4' })
  expect(statSync(join(folder, 'mysql.sock')).mode & 0o077).toBe(0)
  expect(statSync(join(folder, 'mysql')).mode & 0o077).toBe(0)
})

test('after kill -9 the next start heals and has every committed row', async () => {
  const database = await start()
  await query(database.mysqlUrl, "INSERT INTO kept.notes VALUES ('before the kill')")
  process.kill(database.pid, 'SIGKILL')
  expect(await database.ended).toBe('SIGKILL')
  const next = await start()
  expect(await query(next.mysqlUrl, 'SELECT text FROM kept.notes')).toContainEqual({ text: 'before the kill' })
})

test('a second server on the same folder is refused, or ends the first where that one has lost its starter', async () => {
  const first = await start()
  await expect(start()).rejects.toThrow(
    new StartFault(
      `a database server (process ${first.pid}) already runs on ${folder}/mysql: another \`make run\` uses this data folder; stop it, or set another DATA_DIR`,
    ),
  )
  const second = await start({ endSurvivor: true })
  expect(await first.ended).toBe('code 0')
  expect(await query(second.mysqlUrl, 'SELECT 1 AS one')).toEqual([{ one: 1 }])
})

test('what a first start that was killed had made so far is thrown away', async () => {
  const unfinished = join(folder, 'half')
  mkdirSync(join(unfinished, 'mysql.new-1'), { recursive: true })
  writeFileSync(join(unfinished, 'mysql.new-1', 'ibdata1'), 'half a file')
  const database = await start({ dataDir: unfinished })
  await database.stop()
  expect(readdirSync(unfinished).filter((name) => name.startsWith('mysql'))).toEqual(['mysql', 'mysql.version'])
})

test('a data folder whose name is too long for a socket is served from a short folder of its own', async () => {
  const long = join(folder, 'a'.repeat(60), 'b'.repeat(60))
  const database = await start({ dataDir: long })
  const socket = new URL(database.mysqlUrl).searchParams.get('socketPath')!
  expect(socket.length).toBeLessThan(104)
  expect(statSync(dirname(socket)).mode & 0o077).toBe(0)
  expect(await query(database.mysqlUrl, 'SELECT 1 AS one')).toEqual([{ one: 1 }])
  await database.stop()
  expect(existsSync(dirname(socket))).toBe(false)
})

test('a server that can not start is told with the end of its log', async () => {
  const broken = join(folder, 'broken')
  const database = await start({ dataDir: broken })
  await database.stop()
  rmSync(join(broken, 'mysql', 'ibdata1'))
  await expect(start({ dataDir: broken })).rejects.toThrow(/the private database does not start: it ended/)
})

test('data of a newer server, and a disk without room for it, are one line each, and nothing is touched', async () => {
  const fresh = join(folder, 'newer')
  await expect(start({ dataDir: fresh, redoLogMb: 1_000_000_000 })).rejects.toThrow(
    /^the disk that holds .*newer has \d+ MB left and the private database needs 1000000166 MB: free some space, or set/,
  )
  writeFileSync(join(fresh, 'mysql.version'), '99.1.2-MariaDB-log\n')
  await expect(start({ dataDir: fresh })).rejects.toThrow(
    /last used by the server version 99\.1\.2-MariaDB-log, and this machine has \S+: install that one again, or set another/,
  )
  expect(existsSync(join(fresh, 'mysql'))).toBe(false)
})

test.each([
  ['darwin', '', 'run `brew install mariadb`'],
  ['linux', 'NAME="Fedora Linux"\nID=fedora\n', 'run `sudo dnf install -y mariadb-server`'],
  ['linux', 'ID="almalinux"\nID_LIKE="rhel centos fedora"\n', 'run `sudo dnf install -y mariadb-server`'],
  ['linux', 'ID=opensuse-leap\nID_LIKE="suse opensuse"\n', 'run `sudo zypper install -y mariadb`'],
  ['linux', 'ID=alpine\n', 'run `sudo apk add mariadb`'],
  ['linux', '', 'install MariaDB 10.6 or later with its mariadbd in the PATH'],
])('without a server and without apt, %s %j is told what to install', (platform, osRelease, advice) => {
  expect(installAdvice(platform, osRelease)).toBe(`no MariaDB server on this machine: ${advice}, or set MYSQL_URL`)
})

test('a supervised server that dies is started again on the same data', async () => {
  const lines: string[] = []
  const supervised = await superviseLocalDatabase(
    folder,
    (line) => lines.push(line),
    (fault) => lines.push(fault.message),
  )
  running.push(supervised)
  const mysqlUrl = supervised.mysqlUrl
  const first = supervised.pid()
  process.kill(first, 'SIGKILL')
  const found = await untilItAnswers(mysqlUrl)
  expect(found).toContainEqual({ text: 'first' })
  expect(lines.join('\n')).toContain('the private database ended (SIGKILL): starting it again')

  // What keeps it from starting for a while, as a full disk does, is waited for.
  const version = join(folder, 'mysql.version')
  await expect.poll(() => supervised.pid()).not.toBe(first)
  const own = readFileSync(version)
  writeFileSync(version, '99.1.2-MariaDB-log\n')
  process.kill(supervised.pid(), 'SIGKILL')
  await expect.poll(() => lines.at(-1), { timeout: 10_000 }).toMatch(/last used by the server .*; trying again …$/)
  writeFileSync(version, own)
  expect(await untilItAnswers(mysqlUrl)).toContainEqual({ text: 'first' })
}, 40_000)

async function untilItAnswers(mysqlUrl: string): Promise<RowDataPacket[]> {
  for (;;) {
    try {
      return await query(mysqlUrl, 'SELECT text FROM kept.notes')
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
  }
}
