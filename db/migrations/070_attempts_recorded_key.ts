import type { Knex } from 'knex'

const KEY = 'attempts_recorded'

/** Attempts are found through their delivery; nobody looks for them by time, and the key cost every recorded attempt a fifth. */
export async function up(knex: Knex): Promise<void> {
  if (await hasKey(knex)) await knex.raw(`ALTER TABLE attempts DROP KEY ${KEY}`)
}

export async function down(knex: Knex): Promise<void> {
  if (!(await hasKey(knex))) await knex.raw(`ALTER TABLE attempts ADD KEY ${KEY} (recorded_at)`)
}

async function hasKey(knex: Knex): Promise<boolean> {
  const [rows] = await knex.raw(
    `SELECT 1 FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'attempts' AND index_name = ?`,
    [KEY],
  )
  return rows.length > 0
}
