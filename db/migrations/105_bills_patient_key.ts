import type { Knex } from 'knex'

const KEY = 'bills_patient'

/** The bills of a patient. Asks first: MySQL has no ADD KEY IF NOT EXISTS. */
export async function up(knex: Knex): Promise<void> {
  if (await hasKey(knex)) return
  await knex.raw(`ALTER TABLE bills ADD KEY ${KEY} (patient_id)`)
}

export async function down(knex: Knex): Promise<void> {
  if (await hasKey(knex)) await knex.raw(`ALTER TABLE bills DROP KEY ${KEY}`)
}

async function hasKey(knex: Knex): Promise<boolean> {
  const [rows] = await knex.raw(
    `SELECT 1 FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'bills' AND index_name = ?`,
    [KEY],
  )
  return rows.length > 0
}
