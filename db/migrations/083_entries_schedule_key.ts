import type { Knex } from 'knex'

const KEY = 'entries_schedule'

/** The days of an account, in the order in which its bookings are listed. Asks first: MySQL has no ADD KEY IF NOT EXISTS. */
export async function up(knex: Knex): Promise<void> {
  if (await hasKey(knex)) return
  await knex.raw(`ALTER TABLE entries ADD KEY ${KEY} (account_id, phase, scheduled_at, id)`)
}

export async function down(knex: Knex): Promise<void> {
  if (await hasKey(knex)) await knex.raw(`ALTER TABLE entries DROP KEY ${KEY}`)
}

async function hasKey(knex: Knex): Promise<boolean> {
  const [rows] = await knex.raw(
    `SELECT 1 FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'entries' AND index_name = ?`,
    [KEY],
  )
  return rows.length > 0
}
