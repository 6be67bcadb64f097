/**
 * Killed in the middle of a migration: the next start resumes, comes to the same schema, and is not kept waiting for long by
 * the dead one's lock.
 */
import { join } from 'node:path'
import { monotonicMs } from '../../src/clock.ts'
import { connectDatabase } from '../../db/connection.ts'
import { startService, type Service } from '../service-process.ts'
import type { CrashServer } from './crash-server.ts'
import { startDatabaseProxy, type When } from './database-proxy.ts'

const SCRIPT = join(import.meta.dirname, '..', 'migrate.ts')
/** The guard of a dead process is taken over after five seconds. */
const RESUMED_WITHIN_MS = 30_000

/** A table near the beginning and one near the end, as it is made and when it is made and not yet booked. */
const STEPS: [place: number, when: When][] = [[0.1, 'before'], [0.3, 'after'], [0.6, 'before'], [0.95, 'after']] // prettier-ignore
export const MIGRATION_KILLS = STEPS.length

export async function runMigrationPoints(server: CrashServer): Promise<{ runs: number; faults: string[] }> {
  const reference = await server.newDatabase()
  const wanted = await listTables(reference)
  const faults: string[] = []
  for (const [n, [place, when]] of STEPS.entries()) {
    const made = wanted.filter((name) => !/migration/.test(name))
    const table = made[Math.floor(place * made.length)]!
    const fault = await killAndResume(server, reference, table, when, `migrate_${n}`)
    if (fault) faults.push(`${table}, ${when}: ${fault}`)
  }
  return { runs: STEPS.length, faults }
}

async function killAndResume(
  server: CrashServer,
  reference: string,
  table: string,
  when: When,
  name: string,
): Promise<string | undefined> {
  const url = new URL(reference)
  url.pathname = `/lis_${name}`
  const proxy = await startDatabaseProxy(url.href)
  const migrating = start(server, proxy.mysqlUrl, name)
  let reached = false
  proxy.arm({ statement: new RegExp(`CREATE TABLE[^(]*\\b${table}\\b`, 'i'), when }, () => {
    reached = true
    process.kill(migrating.pid, 'SIGKILL')
  })
  await migrating.ended
  proxy.close()
  if (!reached) return 'the step was not reached'
  const killedAtMs = monotonicMs()
  const how = await start(server, url.href, `${name}_again`).ended
  if (how !== 'code 0') return `the next start ended with ${how}`
  const tookMs = monotonicMs() - killedAtMs
  if (tookMs > RESUMED_WITHIN_MS) return `resumed after ${Math.round(tookMs)} ms`
  const [got, wanted] = [await listTables(url.href), await listTables(reference)]
  return got.join() === wanted.join() ? undefined : 'the schema is another one'
}

function start(server: CrashServer, mysqlUrl: string, name: string): Service {
  const env = {
    ...process.env,
    NODE_ENV: 'test',
    MYSQL_URL: mysqlUrl,
    MYSQL_MIGRATE_URL: mysqlUrl,
    DATA_DIR: server.folder,
  }
  return startService('the migration', SCRIPT, env, join(server.folder, 'logs', `${name}.log`))
}

async function listTables(mysqlUrl: string): Promise<string[]> {
  const { knex, close } = connectDatabase(mysqlUrl, 1)
  try {
    const [rows] = await knex.raw('SHOW TABLES')
    return (rows as object[]).map((row) => String(Object.values(row)[0])).sort()
  } finally {
    await close()
  }
}
