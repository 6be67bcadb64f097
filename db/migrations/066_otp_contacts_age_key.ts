import type { Knex } from 'knex'

const KEY = 'otp_contacts_age'

/** Finds contacts that may be forgotten. Asks first: MySQL has no ADD KEY IF NOT EXISTS. */
export async function up(knex: Knex): Promise<void> {
  if (await hasKey(knex)) return
  await knex.raw(`ALTER TABLE otp_contacts ADD KEY ${KEY} (failures_in_row, created_at)`)
}

export async function down(knex: Knex): Promise<void> {
  if (await hasKey(knex)) await knex.raw(`ALTER TABLE otp_contacts DROP KEY ${KEY}`)
}

async function hasKey(knex: Knex): Promise<boolean> {
  const [rows] = await knex.raw(
    `SELECT 1 FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'otp_contacts' AND index_name = ?`,
    [KEY],
  )
  return rows.length > 0
}
