import type { Knex } from 'knex'

/**
 * Removed packages stood under their own id, which another package of the lab may have for its code: now U+0000 is before it, which no
 * request can send. A process from before this one still removes packages to their ids; that disturbs nobody who does not ask for such a
 * code. Run again it changes what has come since.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(
    'UPDATE packages SET code = CONCAT(CHAR(0 USING utf8mb4), id) WHERE removed_at IS NOT NULL AND code = id',
  )
}

/** One whose id has become another's code stays as it is. */
export async function down(knex: Knex): Promise<void> {
  await knex.raw(
    'UPDATE IGNORE packages SET code = id WHERE removed_at IS NOT NULL AND code = CONCAT(CHAR(0 USING utf8mb4), id)',
  )
}
