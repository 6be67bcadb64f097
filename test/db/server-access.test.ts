/**
 * Who may reach a database, and how: `ssl-mode` and `ssl-ca` of the URL against a real server that takes nothing but TLS, and
 * one that has none; a user with too few rights.
 */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createConnection } from 'mysql2/promise'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { connectDatabase, driverOptions } from '../../db/connection.ts'
import { migrate, MigrationFault } from '../../db/migrate.ts'
import { startLocalDatabase, type LocalDatabase } from '../../scripts/local-database.ts'
import { createLogger } from '../../src/logger.ts'
import { freePort } from '../support/free-port.ts'
import { createTestTls } from '../support/tls.ts'

const folder = mkdtempSync(join(tmpdir(), 'lis-mysql-tls-'))
const log = createLogger('migrate', 'silent')
const NETWORK = '--skip-networking=0'
let server: LocalDatabase
let plain: LocalDatabase
let port: number
let plainPort: number
let tls: Awaited<ReturnType<typeof createTestTls>>
let otherTls: Awaited<ReturnType<typeof createTestTls>>

async function start(name: string, serverPort: number, serverArgs: string[]): Promise<LocalDatabase> {
  const dataDir = join(folder, name)
  mkdirSync(dataDir)
  return startLocalDatabase({
    dataDir,
    redoLogMb: 16,
    bufferPoolMb: 32,
    serverArgs: [NETWORK, '--bind-address=127.0.0.1', `--port=${serverPort}`, ...serverArgs],
  })
}

beforeAll(async () => {
  ;[tls, otherTls, port, plainPort] = await Promise.all([createTestTls(), createTestTls(), freePort(), freePort()])
  ;[server, plain] = await Promise.all([
    start('tls', port, [
      `--ssl-cert=${tls.certificateFile}`,
      `--ssl-key=${tls.keyFile}`,
      // The socket, by which it is started, counts as safe.
      '--require-secure-transport=ON',
    ]),
    start('plain', plainPort, []),
  ])
  await migrate(server.mysqlUrl, log)
})

afterAll(async () => {
  await Promise.all([server?.stop(), plain?.stop()])
  tls?.remove()
  otherTls?.remove()
  rmSync(folder, { recursive: true, force: true })
})

const urlOf = (query: string, host = 'localhost') => `mysql://root@${host}:${port}/lis${query}`
const ca = () => `ssl-ca=${encodeURIComponent(tls.caFile)}`
const otherCa = () => `ssl-ca=${encodeURIComponent(otherTls.caFile)}`

/** The cipher of a connection of each pool. */
async function ciphersOf(url: string): Promise<unknown[]> {
  const database = connectDatabase(url, 1)
  try {
    const sql = "SHOW SESSION STATUS LIKE 'Ssl_cipher'"
    const [[knexRow]] = await database.knex.raw(sql)
    const [rows] = await database.batch.transaction((send) => send([{ sql }]))
    return [knexRow.Value, rows![0]!.Value]
  } finally {
    await database.close()
  }
}

describe('a server that takes TLS only', () => {
  test.each([
    ['?ssl-mode=REQUIRED', 'localhost'],
    ['?ssl-mode=required', '127.0.0.1'],
    ['?ssl-ca', '127.0.0.1'],
    ['?ssl-mode=VERIFY_CA&ssl-ca', '127.0.0.1'],
    ['?ssl-mode=VERIFY_IDENTITY&ssl-ca', 'localhost'],
  ])('is reached over TLS with %s at %s, by both pools', async (query, host) => {
    const ciphers = await ciphersOf(urlOf(query.replace('ssl-ca', ca()), host))
    expect(ciphers).toHaveLength(2)
    for (const cipher of ciphers) expect(cipher).toMatch(/AES|CHACHA/)
  })

  test('that is not trusted, or that asks for TLS, is one sentence that says what to do', async () => {
    const where = `the database at localhost:${port}`
    const trust = (why: string) =>
      `${where} is not trusted (${why}): name its authority's file as ssl-ca in MYSQL_URL, or correct its certificate`
    await expect(migrate(urlOf('?ssl-mode=VERIFY_IDENTITY'), log)).rejects.toThrow(
      trust('unable to verify the first certificate'),
    )
    await expect(migrate(urlOf(`?ssl-mode=VERIFY_CA&${otherCa()}`), log)).rejects.toThrow(/is not trusted \(.+\): name/)
    // MySQL has a number of its own for it, MariaDB has not.
    await expect(migrate(urlOf(''), log)).rejects.toThrow(
      /takes TLS only: add \?ssl-mode=VERIFY_IDENTITY|or add \?ssl-mode=VERIFY_IDENTITY to it if the server takes TLS only/,
    )
  })
})

test('a server without TLS is not spoken to where TLS is asked for', async () => {
  await expect(migrate(`mysql://root@localhost:${plainPort}/lis?ssl-mode=REQUIRED`, log)).rejects.toThrow(
    `the database at localhost:${plainPort} offers no TLS: give it a certificate, or take ssl-mode out of MYSQL_URL`,
  )
  expect(await migrate(`mysql://root@localhost:${plainPort}/lis?ssl-mode=DISABLED`, log)).toBeGreaterThan(0)
})

test('a user who may not change the schema is told what is missing, by the setting that names it', async () => {
  const { mysqlUrl } = plain
  await migrate(mysqlUrl, log)
  const root = await createConnection(driverOptions(mysqlUrl))
  await root.query("CREATE USER reader@localhost IDENTIFIED BY 'secret'")
  await root.query('GRANT SELECT, INSERT, UPDATE, DELETE ON lis.* TO reader@localhost')
  const url = mysqlUrl.replace('//root@', '//reader:secret@')
  // Where nothing is to be done nothing is needed.
  expect(await migrate(url, log, () => {}, 'MYSQL_MIGRATE_URL')).toBe(0)

  await root.query('DELETE FROM schema_migrations ORDER BY id DESC LIMIT 1')
  await root.end()
  const fault = await migrate(url, log, () => {}, 'MYSQL_MIGRATE_URL').catch((error) => error)
  expect(fault).toBeInstanceOf(MigrationFault)
  expect(fault.message).toMatch(
    /^the user reader lacks a right on the database lis at \S+ \(\w+ command denied to user .+\): have it granted, as the README lists them, or correct MYSQL_MIGRATE_URL$/,
  )
})
