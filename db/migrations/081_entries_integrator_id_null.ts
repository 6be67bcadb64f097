import type { Knex } from 'knex'

/** An entry that staff make for no integrator has no integrator's id. Run again it changes nothing. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw('ALTER TABLE entries MODIFY integrator_id TEXT NULL')
}

export async function down(knex: Knex): Promise<void> {
  await knex('entries').whereNull('integrator_id').update({ integrator_id: '' })
  await knex.raw('ALTER TABLE entries MODIFY integrator_id TEXT NOT NULL')
}
