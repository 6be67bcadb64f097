import type { Knex } from 'knex'

/**
 * Text that we parse, no longer JSON: MariaDB refuses JSON of 32 levels, one less than a request may have around a custom
 * field (decisions, limits), and MySQL rewrites its numbers. Run again it changes nothing.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw('ALTER TABLE entries MODIFY details LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL')
}

/** Versions before this read text as well, and MariaDB would refuse what was stored since: it stays text. */
export async function down(): Promise<void> {}
