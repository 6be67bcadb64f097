import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import type { Knex } from 'knex'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { connectDatabase, type Database } from '../../db/connection.ts'
import { listMigrationNames, MIGRATIONS } from '../../db/knexfile.ts'
import { migrate, MigrationFault, schemaIsCurrent, serverFault } from '../../db/migrate.ts'
import { takeMigrationGuard } from '../../db/migration-guard.ts'
import { newId } from '../../src/ids.ts'
import { createLogger } from '../../src/logger.ts'
import { createEmptyDatabase } from '../support/database.ts'
import { urlOfDatabase } from '../support/test-server.ts'

const log = createLogger('migrate', 'silent')
const names = listMigrationNames()
const KILLED = join(import.meta.dirname, '..', 'support', 'killed-migration.ts')
const SCRIPT = join(import.meta.dirname, '..', '..', 'scripts', 'migrate.ts')

/** Each start of a process costs a second: the gate kills at every tenth migration, KILL_EVERY=1 at each. */
const KILL_EVERY = Number(process.env.KILL_EVERY ?? 10)
const killed = names.filter((_, step) => step % KILL_EVERY === 0 || step === names.length - 1)

let mysqlUrl: string
let database: Database
let drop: () => Promise<void>

beforeEach(async () => {
  const created = await createEmptyDatabase()
  mysqlUrl = created.mysqlUrl
  drop = created.drop
  database = connectDatabase(mysqlUrl)
})

afterEach(async () => {
  await database.close()
  await drop()
})

const appliedNames = () => database.knex('schema_migrations').orderBy('id').pluck('name')

const tableNames = async (): Promise<string[]> => {
  const [rows] = await database.knex.raw('SHOW TABLES')
  return rows.map((row: object) => Object.values(row)[0])
}

describe('migrate', () => {
  test('an empty database gets every migration once, in order; a second call applies nothing', async () => {
    expect(await schemaIsCurrent(database.knex)).toBe(false)
    expect(await migrate(mysqlUrl, log)).toBe(names.length)
    expect(await appliedNames()).toEqual(names)
    expect(await schemaIsCurrent(database.knex)).toBe(true)
    expect(await migrate(mysqlUrl, log)).toBe(0)
    expect(await appliedNames()).toEqual(names)
  })

  test('a database that is missing is created', async () => {
    await drop()
    expect(await migrate(mysqlUrl, log)).toBe(names.length)
  })

  test('of several starters at once one applies everything, the others wait for it', async () => {
    const applied = await Promise.all([1, 2, 3, 4].map(() => migrate(mysqlUrl, log)))
    expect(applied.toSorted((a, b) => a - b)).toEqual([0, 0, 0, names.length])
    expect(await appliedNames()).toEqual(names)
  })

  test(
    "a kill after a migration's statement, before it is booked, is made up for by the next call",
    async () => {
      await migrate(mysqlUrl, log)
      const rows = await database.knex('schema_migrations').orderBy('id')
      for (const step of killed.map((name) => names.indexOf(name))) {
        // What a kill leaves: the table is there, its row is not, and knex holds its lock for ever.
        await database.knex('schema_migrations').where('id', '>=', rows[step].id).delete()
        await database.knex('schema_migrations_lock').update({ is_locked: 1 })
        expect(await migrate(mysqlUrl, log)).toBe(names.length - step)
        await database.knex('schema_migrations').delete()
        await database.knex('schema_migrations').insert(rows)
      }
      expect(await schemaIsCurrent(database.knex)).toBe(true)
    },
    60_000 + killed.length * 12_000,
  )

  test(
    `kill -9 at the statement of ${killed.length} migrations in turn: the schema is that of an undisturbed run`,
    async () => {
      const showSchema = async (): Promise<string[]> => {
        const texts: string[] = []
        for (const table of (await tableNames()).toSorted()) {
          const [rows] = await database.knex.raw('SHOW CREATE TABLE ??', [table])
          // Counted on by knex, also for rows that a kill kept from being written.
          texts.push(String(rows[0]['Create Table'] ?? rows[0]['Create View']).replace(/ AUTO_INCREMENT=\d+/, ''))
        }
        return texts
      }
      await migrate(mysqlUrl, log)
      const undisturbed = await showSchema()
      await database.knex.schema.dropView('attempts')
      for (const table of await tableNames()) await database.knex.schema.dropTable(table)

      for (const [turn, name] of killed.entries()) {
        // What the beat of a killed owner brings about in 5 s; the next test waits for it.
        if (turn > 0) await database.knex('migration_guard').update({ owner: null })
        const env = { ...process.env, MYSQL_URL: mysqlUrl, KILL_AT: name, KILL_WHEN: turn % 2 ? 'sent' : 'answered' }
        const [, signal] = await once(spawn(process.execPath, [KILLED], { env, stdio: 'inherit' }), 'exit')
        expect({ name, signal }).toEqual({ name, signal: 'SIGKILL' })
        expect(await appliedNames()).toEqual(names.slice(0, names.indexOf(name)))
      }
      await database.knex('migration_guard').update({ owner: null })
      expect(await migrate(mysqlUrl, log)).toBe(1)
      expect(await appliedNames()).toEqual(names)
      expect(await showSchema()).toEqual(undisturbed)
    },
    60_000 + killed.length * 12_000,
  )

  test('a migrating process that is killed half-way is replaced, and the schema becomes whole', async () => {
    const child = spawn(process.execPath, [SCRIPT], { env: { ...process.env, MYSQL_URL: mysqlUrl }, stdio: 'ignore' })
    const ended = once(child, 'exit')
    while ((await tableNames()).length < 10) await new Promise((resolve) => setImmediate(resolve))
    child.kill('SIGKILL')
    await ended
    expect((await appliedNames()).length).toBeLessThan(names.length)

    const lines: string[] = []
    const applied = await migrate(mysqlUrl, log, (line) => lines.push(line))
    expect(applied).toBeGreaterThan(0)
    expect(lines.join('\n')).toContain('taking over')
    expect(await appliedNames()).toEqual(names)
  })

  test('a schema that is newer than the code is refused with what to do, and is current for a running process', async () => {
    await migrate(mysqlUrl, log)
    await database.knex('schema_migrations').insert({ name: '999_from_the_future.ts', batch: 2 })
    const refused = migrate(mysqlUrl, log)
    await expect(refused).rejects.toThrow(MigrationFault)
    await expect(refused).rejects.toThrow(
      /newer than this version \(it has 999_from_the_future\.ts\): start the version/,
    )
    expect(await schemaIsCurrent(database.knex)).toBe(true)
  })

  test('tests and packages that were removed before stand under no code that can be asked for, and can go back', async () => {
    await migrate(mysqlUrl, log)
    const [gone, late, kept] = [newId(1), newId(2), newId(3)]
    const base = { account_id: newId(0), lab_id: newId(0), name: 'x', created_at: new Date(0) }
    const codes = async () => [
      await database.knex('tests').orderBy('id').pluck('code'),
      await database.knex('packages').orderBy('id').pluck('code'),
    ]
    const remove = async (id: string) => {
      const removed = { ...base, id, code: id, active: false, removed_at: new Date(0) }
      await database.knex('tests').insert({ ...removed, cost: 1 })
      await database.knex('packages').insert({ ...removed, total: 1 })
    }
    await remove(gone)
    await database.knex('tests').insert({ ...base, id: kept, code: kept, cost: 1 })
    await database.knex('packages').insert({ ...base, id: kept, code: kept, total: 1 })
    const steps: { up(knex: Knex): Promise<void>; down(knex: Knex): Promise<void> }[] = await Promise.all(
      names.filter((name) => name.endsWith('_removed_code.ts')).map((name) => import(join(MIGRATIONS.directory, name))),
    )
    for (const { up } of steps) await up(database.knex)
    expect(await codes()).toEqual(Array(2).fill([`\0${gone}`, kept]))
    // By a process from before.
    await remove(late)
    for (const { up } of [...steps, ...steps]) await up(database.knex)
    expect(await codes()).toEqual(Array(2).fill([`\0${gone}`, `\0${late}`, kept]))
    for (const table of ['tests', 'packages']) await database.knex(table).where({ id: kept }).update({ code: late })
    for (const { down } of [...steps, ...steps]) await down(database.knex)
    expect(await codes()).toEqual(Array(2).fill([gone, `\0${late}`, late]))
  })

  test('a schema that lacks a migration is not current', async () => {
    await migrate(mysqlUrl, log)
    await database
      .knex('schema_migrations')
      .where({ name: names.at(-1) })
      .delete()
    expect(await schemaIsCurrent(database.knex)).toBe(false)
  })

  test('a database that can not be reached, or refuses the user, is one line that says what to do', async () => {
    await expect(migrate('mysql://root@127.0.0.1:1/lis', log)).rejects.toThrow(
      'no database answers at 127.0.0.1:1 (ECONNREFUSED): start it, or correct MYSQL_URL',
    )
    const stranger = new URL(urlOfDatabase(mysqlUrl, 'lis'))
    stranger.username = 'lis_no_such_user'
    stranger.password = 'wrong'
    await expect(migrate(stranger.href, log)).rejects.toThrow(/refuses the user lis_no_such_user: correct the user/)
  })
})

describe('the guard of the migrations', () => {
  test('a holder whose beat moves is waited for; one whose beat stands still is replaced', async () => {
    const first = await takeMigrationGuard(database.knex, () => {}, 400)
    let secondHas = false
    const second = takeMigrationGuard(database.knex, () => {}, 400).then((guard) => {
      secondHas = true
      return guard
    })
    // A second of beats, each well before the last is 400 ms old.
    for (let i = 0; i < 20; i++) {
      await first.prove()
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
    expect(secondHas).toBe(false)
    await first.release()
    await database.knex('migration_guard').update({ owner: 'a-process-that-was-killed' })
    const taken = await second
    expect(await database.knex('migration_guard').pluck('owner')).not.toEqual(['a-process-that-was-killed'])
    await taken.release()
    expect(await database.knex('migration_guard').pluck('owner')).toEqual([null])
  })

  test('a row that is locked for longer than one statement waits is waited for', async () => {
    const first = await takeMigrationGuard(database.knex, () => {})
    await first.release()
    const holder = await database.knex.transaction()
    await holder('migration_guard').forUpdate()
    const taking = takeMigrationGuard(database.knex, () => {})
    // One waits for a second, and with MySQL for up to two.
    await new Promise((resolve) => setTimeout(resolve, 2500))
    await holder.rollback()
    const guard = await taking
    await guard.prove()
    await guard.release()
  })

  test('a holder that was taken for dead learns it before it writes again', async () => {
    const guard = await takeMigrationGuard(database.knex, () => {})
    await database.knex('migration_guard').update({ owner: 'another' })
    await expect(guard.prove()).rejects.toThrow('another process has taken over')
    await guard.release()
    expect(await database.knex('migration_guard').pluck('owner')).toEqual(['another'])
  })
})

describe('servers', () => {
  test.each([
    ['8.0.36', true],
    ['8.4.3-standard', true],
    ['9.7.0', true],
    ['5.7.44-log', false],
    ['10.11.19-MariaDB-0+deb12u1', true],
    ['5.5.5-10.6.1-MariaDB', true],
    ['10.5.29-MariaDB', false],
    ['11.8.2-MariaDB', true],
  ])('%s is accepted: %s', (version, accepted) => {
    expect(serverFault(version) === undefined).toBe(accepted)
  })
})
