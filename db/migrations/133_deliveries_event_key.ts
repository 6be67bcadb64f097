import type { Knex } from 'knex'

const KEY = 'deliveries_event'

/** An event's deliveries are those of its lab's webhooks, each found by the primary key: this one cost every delivery a write. */
export async function up(knex: Knex): Promise<void> {
  if (await hasKey(knex)) await knex.raw(`ALTER TABLE deliveries DROP KEY ${KEY}`)
}

export async function down(knex: Knex): Promise<void> {
  if (!(await hasKey(knex))) await knex.raw(`ALTER TABLE deliveries ADD KEY ${KEY} (event_id)`)
}

async function hasKey(knex: Knex): Promise<boolean> {
  const [rows] = await knex.raw(
    `SELECT 1 FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'deliveries' AND index_name = ?`,
    [KEY],
  )
  return rows.length > 0
}
