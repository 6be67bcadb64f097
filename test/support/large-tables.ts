/**
 * Tables that look to the server's optimizer as they do after years: thousands of rows in each, all with ids of their own.
 */
import type { Knex } from 'knex'

interface Column {
  table: string
  name: string
  type: string
  length: number | null
  nullable: string
  extra: string
}

const DIGITS = Array.from({ length: 10 }, (_, n) => `SELECT ${n} AS n`).join(' UNION ALL ')
const NUMBERS = `(SELECT a.n + 10 * b.n + 100 * c.n + 1000 * d.n AS n
  FROM (${DIGITS}) a, (${DIGITS}) b, (${DIGITS}) c, (${DIGITS} LIMIT 4) d) numbers`

/**
 * Adds 4,000 rows to every table of the database but these.
 * @returns the tables that have them
 */
export async function enlargeTables(knex: Knex, except: Set<string>): Promise<string[]> {
  const [rows] = await knex.raw(
    `SELECT c.table_name AS 'table', c.column_name AS name, c.data_type AS type, c.character_maximum_length AS length,
      c.is_nullable AS nullable, c.extra AS extra
     FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
     WHERE c.table_schema = DATABASE() AND t.table_type = 'BASE TABLE' ORDER BY c.table_name, c.ordinal_position`,
  )
  const tables = Map.groupBy(rows as Column[], ({ table }) => table)
  for (const name of except) tables.delete(name)
  await knex.transaction(async (trx) => {
    for (const [table, columns] of tables) {
      const sample = await trx(table).first()
      const written = columns.filter(({ extra }) => !/GENERATED|auto_increment/i.test(extra))
      const values = written.map((column, n) => valueOf(column, n, sample))
      await trx.raw(
        `INSERT IGNORE INTO ${table} (${written.map(({ name }) => `\`${name}\``).join(', ')})
         SELECT ${values.map(({ sql }) => sql).join(', ')} FROM ${NUMBERS}`,
        values.flatMap(({ binding }) => (binding === undefined ? [] : [binding as string])),
      )
    }
  })
  await knex.raw(`ANALYZE TABLE ${[...tables.keys()].join(', ')}`)
  return [...tables.keys()]
}

/** What may be null is: what waits, fails or was removed is rare in large tables. Words are those of a row that is there. */
function valueOf(
  { name, type, length, nullable }: Column,
  place: number,
  sample: Record<string, unknown> | undefined,
): { sql: string; binding?: unknown } {
  if (nullable === 'YES') return { sql: 'NULL' }
  if (/char/.test(type)) {
    if (length === 26) return { sql: `CONCAT('0${place % 10}', LPAD(n * 7919, 24, '0'))` }
    const word = sample?.[name]
    return typeof word === 'string' && !/code|hash|value|key/.test(name)
      ? { sql: '?', binding: word }
      : { sql: `CONCAT('x', n)` }
  }
  if (/binary|blob/.test(type)) return { sql: `UNHEX(SHA2(n, 256))` }
  if (/datetime|timestamp/.test(type)) return { sql: `TIMESTAMPADD(SECOND, -n, '2026-11-01 00:00:00')` }
  if (type === 'date') return { sql: `DATE_ADD('2026-01-01', INTERVAL n MOD 300 DAY)` }
  // MariaDB's JSON is a longtext with a check.
  if (/json|longtext/.test(type)) return { sql: `'[]'` }
  if (/int/.test(type)) return { sql: /tiny|small/.test(type) ? '1' : 'n + 1' }
  if (/text/.test(type)) return { sql: `CONCAT('x', n)` }
  return { sql: '1' }
}
