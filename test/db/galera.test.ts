import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { COMMIT } from '../../db/batch.ts'
import { connectDatabase, isRetriable, type Database } from '../../db/connection.ts'
import { makeSureOfGuard } from '../../db/migration-guard.ts'
import { findProgram } from '../../scripts/database-server.ts'
import { startLocalDatabase, type LocalDatabase } from '../../scripts/local-database.ts'
import { freePort } from '../support/free-port.ts'
import { urlOfDatabase, withServer } from '../support/test-server.ts'

const isMySql = findProgram('mariadbd') === undefined && findProgram('mysqld') !== undefined
const fetched = isMySql ? undefined : spawnSync('test/servers/galera.sh', { encoding: 'utf8' })
const provider = fetched?.status === 0 ? fetched.stdout.trim() : undefined
const WITHOUT_PROVIDER = `skipped: ${fetched ? `no galera: ${fetched.stderr.trim().split('\n').at(-1)}` : 'this machine has MySQL'}`
if (!provider) console.log(WITHOUT_PROVIDER)

const TABLES = ['a', 'b', 'c']
const WRITERS = 12
const FOR_MS = 4000
const ROUNDS = 20

let folder: string
let server: LocalDatabase
let database: Database

describe.skipIf(!provider)(`on a node of a cluster${provider ? '' : ` (${WITHOUT_PROVIDER})`}`, () => {
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'lis-galera-'))
    const port = await freePort()
    server = await startLocalDatabase({
      dataDir: folder,
      redoLogMb: 64,
      serverArgs: [
        '--wsrep-new-cluster',
        '--wsrep-on=ON',
        `--wsrep-provider=${provider}`,
        '--wsrep-cluster-address=gcomm://',
        `--wsrep-node-address=127.0.0.1:${port}`,
        `--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:${port};gcache.size=16M`,
        '--binlog-format=ROW',
        '--innodb-autoinc-lock-mode=2',
      ],
    })
  }, 120_000)

  afterAll(async () => {
    await server?.stop()
    rmSync(folder, { recursive: true, force: true })
  })

  beforeEach(async () => {
    await withServer(server.mysqlUrl, (connection) => connection.query('CREATE OR REPLACE DATABASE galera'))
    database = connectDatabase(urlOfDatabase(server.mysqlUrl, 'galera'), WRITERS + 2)
    return () => database.close()
  })

  test('a batch that is rolled back for the change of a table leaves nothing of it behind', async () => {
    for (const table of TABLES) await database.knex.raw(`CREATE TABLE ${table} (id INT PRIMARY KEY) ENGINE=InnoDB`)
    const committed = new Set<number>()
    let rolledBack = 0
    let last = 0
    let isOver = false
    const write = async () => {
      while (!isOver) {
        const id = ++last
        const inserts = TABLES.map((table) => ({ sql: `INSERT INTO ${table} VALUES (?)`, values: [id] }))
        try {
          await database.batch.transaction((send) => send([...inserts, COMMIT]))
          committed.add(id)
        } catch (error) {
          if (!isRetriable(error)) throw error
          rolledBack += 1
        }
      }
    }
    const change = async () => {
      for (let n = 0; !isOver; n++) {
        await database.knex.raw(`ALTER TABLE ${TABLES[n % TABLES.length]} COMMENT = 'change ${n}'`)
        await new Promise((resolve) => setTimeout(resolve, 5))
      }
    }
    const work = Promise.all([change(), ...Array.from({ length: WRITERS }, write)])
    const over = setTimeout(() => (isOver = true), FOR_MS)
    await work.finally(() => {
      isOver = true
      clearTimeout(over)
    })
    expect(committed.size).toBeGreaterThan(0)
    expect(rolledBack).toBeGreaterThan(0)
    for (const table of TABLES) expect(new Set(await database.knex(table).pluck('id')), table).toEqual(committed)
  }, 60_000)

  test('of several that make the guard of the migrations at once none is turned away', async () => {
    for (let round = 0; round < ROUNDS; round++) {
      const made = Array.from({ length: WRITERS }, async (_, n) => {
        // Each begins while the others' are at its end.
        await new Promise((resolve) => setTimeout(resolve, n))
        await makeSureOfGuard(database.knex)
      })
      expect(await Promise.allSettled(made)).toEqual(made.map(() => ({ status: 'fulfilled', value: undefined })))
      await database.knex.raw('DROP TABLE migration_guard')
    }
  }, 60_000)
})
