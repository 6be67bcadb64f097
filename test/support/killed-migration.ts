/**
 * A process that migrates MYSQL_URL and kills itself (SIGKILL) at the first writing statement of the migration KILL_AT:
 * as it is sent, or, with KILL_WHEN=answered, when the server has done it and nothing is booked yet.
 */
import { createRequire } from 'node:module'
import { listMigrationNames } from '../../db/knexfile.ts'
import { migrate } from '../../db/migrate.ts'
import { createLogger } from '../../src/logger.ts'

type Query = (this: unknown, ...args: unknown[]) => unknown

const { MYSQL_URL, KILL_AT, KILL_WHEN } = process.env
const names = listMigrationNames()
const before = names[names.indexOf(KILL_AT!) - 1]
let armed = before === undefined

// What every connection of the driver inherits.
const { prototype } = createRequire(import.meta.url)('mysql2').Connection as { prototype: { query: Query } }
const { query } = prototype
prototype.query = function (...args) {
  const [text, ...rest] = args as [string | { sql: string; values?: unknown[] }, ...unknown[]]
  const sql = typeof text === 'string' ? text : text.sql
  const values = JSON.stringify([typeof text === 'string' ? undefined : text.values, ...rest])
  const writes =
    /^\s*(create|alter|drop|rename|update|insert|delete)\s/i.test(sql) && !/migration_guard|schema_migrations/.test(sql)
  if (armed && writes) {
    const command = query.apply(this, args) as { on(event: string, listener: () => void): void }
    if (KILL_WHEN === 'answered') command.on('end', () => process.kill(process.pid, 'SIGKILL'))
    else setImmediate(() => process.kill(process.pid, 'SIGKILL'))
    return command
  }
  if (/^insert into .?schema_migrations/i.test(sql) && before !== undefined && values.includes(before)) armed = true
  return query.apply(this, args)
}

await migrate(MYSQL_URL!, createLogger('migrate', 'silent'))
