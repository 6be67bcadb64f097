/**
 * What a statement that locks has to say, so that it meets its own rows only.
 */
import type { Knex } from 'knex'

/**
 * A table that is looked up by its primary key, whatever the optimizer makes of a small one: read from end to end, it waits for the
 * rows of every transaction that is still open. The hint is in vain where the query asks for nothing but the key's own columns.
 */
export function byPrimaryKey(knex: Knex, table: string): Knex.Raw {
  return knex.raw('?? FORCE INDEX (PRIMARY)', [table])
}
