/**
 * A production process does not start where an answer would be no promise, or with secrets that everybody knows.
 */
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { createConnection } from 'mysql2/promise'
import { driverOptions } from '../../db/connection.ts'
import { durabilityFaultsOf } from '../../db/durability.ts'
import { migrate } from '../../db/migrate.ts'
import { startLocalDatabase, type LocalDatabase } from '../../scripts/local-database.ts'
import { deriveKeys, seal } from '../../src/crypto.ts'
import { newId } from '../../src/ids.ts'
import { createLogger } from '../../src/logger.ts'
import { findUnsafeSettings } from '../../src/unsafe-settings.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const PROCESSES: [name: string, script: string][] = [['API', 'src/server.ts'], ['daemon', 'daemon/main.ts']] // prettier-ignore
/** Of pino. */
const WARN = 40
/** As random as it looks. */
const RANDOM_KEY = 'q1tPPXcpqKZ0fuyWgWjPpJX0l3A7m2f4yUqz8N1cTIk='

const folder = mkdtempSync(join(tmpdir(), 'lis-unsafe-'))
let database: LocalDatabase
const started: ChildProcess[] = []

beforeAll(async () => {
  database = await startLocalDatabase({ dataDir: folder, redoLogMb: 16, bufferPoolMb: 32, binlog: true })
  await migrate(database.mysqlUrl, createLogger('migrate', 'silent'))
}, 120_000)
afterEach(() => {
  for (const child of started.splice(0)) child.kill('SIGKILL')
})
afterAll(async () => {
  await database.stop()
  rmSync(folder, { recursive: true, force: true })
})

async function query(sql: string, values: unknown[] = []): Promise<void> {
  const connection = await createConnection(driverOptions(database.mysqlUrl))
  await connection.query(sql, values)
  await connection.end()
}

const setGlobal = (sql: string) => query(`SET GLOBAL ${sql}`)

function insertSecret(secretsKey: Buffer, webhookId: string): Promise<void> {
  const sealed = seal(deriveKeys(secretsKey), Buffer.alloc(32), webhookId)
  return query('INSERT INTO webhook_secrets (webhook_id, id, sealed, created_at) VALUES (?, ?, ?, UTC_TIMESTAMP())', [
    webhookId,
    webhookId,
    sealed,
  ])
}

/** Until it listens, or has ended. */
async function start(script: string, env: Record<string, string>, args: string[] = []) {
  const child = spawn(process.execPath, [...args, join(ROOT, script)], {
    env: {
      PATH: process.env.PATH,
      MYSQL_URL: database.mysqlUrl,
      DATA_DIR: folder,
      PORT: '0',
      DAEMON_PORT: '0',
      ...env,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  started.push(child)
  let [out, errors] = ['', '']
  child.stderr!.on('data', (chunk) => (errors += chunk))
  const listens = new Promise<void>((resolve) => {
    child.stdout!.on('data', (chunk) => {
      out += chunk
      if (out.includes('listening ')) resolve()
    })
  })
  const ended = once(child, 'close')
  await Promise.race([listens, ended])
  return { code: child.exitCode, errors, isListening: out.includes('listening ') }
}

const PRODUCTION = {
  NODE_ENV: 'production',
  SECRETS_KEY: RANDOM_KEY,
  SMTP_URL: 'smtp://127.0.0.1:1',
  SMS_GATEWAY_URL: 'http://127.0.0.1:1',
  MESSAGE_GATEWAY_URL: 'http://127.0.0.1:1',
}

describe.each(PROCESSES)('the %s', (_, script) => {
  test('starts in production on a durable database', async () => {
    expect(await start(script, PRODUCTION)).toMatchObject({ isListening: true })
  }, 60_000)

  test('on a database that loses what it has acknowledged: refuses in production, warns elsewhere', async () => {
    await setGlobal('innodb_flush_log_at_trx_commit = 2, GLOBAL sync_binlog = 0')
    try {
      const wanted = ['set innodb_flush_log_at_trx_commit = 1 on it (it is 2)', 'set sync_binlog = 1 on it (it is 0)']
      const refused = await start(script, PRODUCTION)
      expect(refused).toMatchObject({ code: 1, isListening: false })
      for (const sentence of wanted) expect(refused.errors).toContain(sentence)
      const elsewhere = await start(script, { NODE_ENV: 'development' })
      expect(elsewhere.isListening).toBe(true)
      const lines = elsewhere.errors.split('\n').filter((line) => line.includes('database.not_durable'))
      for (const [n, sentence] of wanted.entries()) {
        expect(JSON.parse(lines[n]!)).toMatchObject({ level: WARN, reason: expect.stringContaining(sentence) })
      }
    } finally {
      await setGlobal('innodb_flush_log_at_trx_commit = 1, GLOBAL sync_binlog = 1')
    }
  }, 60_000)

  test('with known secrets and an open debugger: refuses in production, and says all of it at once', async () => {
    const env = {
      ...PRODUCTION,
      SECRETS_KEY: Buffer.alloc(32, 7).toString('base64'),
      MYSQL_URL: 'mysql://lis_api:api-password@127.0.0.1:1/lis',
      NODE_DEBUG: 'http',
    }
    const { code, errors } = await start(script, env, ['--inspect=127.0.0.1:0'])
    expect(code).toBe(1)
    for (const sentence of [
      'SECRETS_KEY is not random: make one with openssl rand -base64 32',
      'MYSQL_URL has the password of an example: set one of your own',
      'the debugger is open: start without --inspect',
      'NODE_DEBUG makes libraries print what they handle: unset it',
    ]) {
      expect(errors).toContain(sentence)
    }
    expect(errors).not.toContain('api-password')
    const inQuotes = await start(script, { ...PRODUCTION, NODE_OPTIONS: '"--inspect=127.0.0.1:0"' })
    expect([inQuotes.code, inQuotes.errors]).toEqual([1, expect.stringContaining('the debugger is open')])
  }, 60_000)

  test('says in one line why it can not use the database, and what to do', async () => {
    const [stranger, unknown] = [new URL(database.mysqlUrl), new URL(database.mysqlUrl)]
    stranger.username = 'lis_no_such_user'
    stranger.password = 'hunter2'
    unknown.pathname = '/lis_unknown'
    const socket = stranger.searchParams.get('socketPath')
    const faults: [url: string, sentence: string][] = [
      [
        stranger.href,
        `the database at ${socket} refuses the user lis_no_such_user: correct the user or the password in MYSQL_URL`,
      ],
      [unknown.href, `there is no database lis_unknown at ${socket}: run make migrate, or correct MYSQL_URL`],
      [
        'mysql://root@127.0.0.1:1/lis',
        'no database answers at 127.0.0.1:1 (ECONNREFUSED): start it, or correct MYSQL_URL',
      ],
    ]
    for (const [MYSQL_URL, sentence] of faults) {
      const { code, errors } = await start(script, { MYSQL_URL })
      expect([code, errors.replace(/^daemon: /, '')]).toEqual([1, `${sentence}\n`])
    }
  }, 60_000)

  test('with a key under which none of the newest secrets was encrypted: refuses in production unless that one is lost, warns elsewhere', async () => {
    const own = PRODUCTION
    const insert = async (key: Buffer, count: number) => {
      for (let n = 0; n < count; n++) await insertSecret(key, newId(Date.now()))
    }
    try {
      await insert(Buffer.alloc(32, 7), 5)
      const { code, errors } = await start(script, own)
      expect([code, errors]).toEqual([1, expect.stringMatching(/^(daemon: )?the webhooks' secrets [^\n]+\n$/)])
      expect(await start(script, { ...own, SECRETS_KEY_LOST: 'true' })).toMatchObject({ isListening: true })
      const elsewhere = await start(script, { SECRETS_KEY: RANDOM_KEY })
      expect(elsewhere.isListening).toBe(true)
      expect(elsewhere.errors).toContain('"event":"secrets.foreign_key"')
      // Some of an earlier key, or damaged ones, stop nobody.
      await insert(Buffer.from(RANDOM_KEY, 'base64'), 1)
      await insert(Buffer.alloc(32, 7), 4)
      expect(await start(script, own)).toMatchObject({ isListening: true })
    } finally {
      await query('DELETE FROM webhook_secrets')
    }
  }, 60_000)
})

test('a daemon’s own database is named by its own setting', async () => {
  const { errors } = await start('daemon/main.ts', { MYSQL_DAEMON_URL: 'mysql://root@127.0.0.1:1/lis' })
  expect(errors).toMatch(/^daemon: no database answers at [^\n]* or correct MYSQL_DAEMON_URL\n$/)
}, 60_000)

test('the binary log need not be synchronous where there is none', () => {
  const faults = (values: Record<string, string>) => durabilityFaultsOf(new Map(Object.entries(values))).length
  expect(faults({ innodb_flush_log_at_trx_commit: '1', log_bin: 'OFF', sync_binlog: '0' })).toBe(0)
  expect(faults({ innodb_flush_log_at_trx_commit: '0', log_bin: 'ON', sync_binlog: '100' })).toBe(2)
})

test('a random key, a password of one’s own and no debugger are taken', () => {
  const env = { MYSQL_URL: 'mysql://lis:7cQm1_x@db/lis', NODE_OPTIONS: '--max-old-space-size=512' }
  expect(findUnsafeSettings(env, Buffer.from(RANDOM_KEY, 'base64'), ['--env-file=x'])).toEqual([])
})

test.each([
  '--inspect-brk',
  '"--inspect=127.0.0.1:9999"',
  '--inspect_brk=9999',
  ' --inspect_wait',
  '--title=x --inspect',
])('NODE_OPTIONS %j opens a debugger', (options) => {
  const key = Buffer.from(RANDOM_KEY, 'base64')
  const open = [expect.stringContaining('the debugger is open')]
  expect(findUnsafeSettings({ NODE_OPTIONS: options }, key, [])).toEqual(open)
  expect(findUnsafeSettings({}, key, options.split(' '))).toEqual(open)
})

test('a debugger that listens is seen, however it was opened', () => {
  const findings = findUnsafeSettings({}, Buffer.from(RANDOM_KEY, 'base64'), [], 'ws://127.0.0.1:9229/x')
  expect(findings).toEqual([expect.stringContaining('the debugger is open')])
})

test('a daemon names the setting of a host that is none of this machine', async () => {
  const { errors } = await start('daemon/main.ts', { DAEMON_HOST: '192.0.2.1' })
  expect(errors).toContain('daemon: 192.0.2.1 is no address of this machine: correct DAEMON_HOST\n')
  expect(errors).not.toContain('    at ')
}, 60_000)
