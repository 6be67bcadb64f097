import type { Knex } from 'knex'

/** Every attempt but the last of an ended delivery. */
export async function up(knex: Knex): Promise<void> {
  if (await knex.schema.hasTable('earlier_attempts')) return
  await knex.raw('RENAME TABLE attempts TO earlier_attempts')
}

export async function down(knex: Knex): Promise<void> {
  if (!(await knex.schema.hasTable('earlier_attempts'))) return
  await knex.raw('RENAME TABLE earlier_attempts TO attempts')
}
