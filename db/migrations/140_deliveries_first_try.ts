import type { Knex } from 'knex'

/**
 * What most deliveries end as need not be said for each: a recorder leaves it out. Versions before this one say it always, and go on
 * beside this one.
 */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(
    `ALTER TABLE deliveries ALTER COLUMN status SET DEFAULT 'delivered', ALTER COLUMN attempts SET DEFAULT 1`,
  )
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('ALTER TABLE deliveries ALTER COLUMN status DROP DEFAULT, ALTER COLUMN attempts DROP DEFAULT')
}
