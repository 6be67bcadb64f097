import type { Knex } from 'knex'

/**
 * The trace context of the request that recorded the event, as in the header `traceparent`; NULL where nobody traces, and then
 * not a byte. MySQL has no ADD COLUMN IF NOT EXISTS.
 */
export async function up(knex: Knex): Promise<void> {
  if (await knex.schema.hasColumn('events', 'trace_parent')) return
  await knex.raw('ALTER TABLE events ADD COLUMN trace_parent VARCHAR(55) CHARACTER SET ascii COLLATE ascii_bin NULL')
}

export async function down(knex: Knex): Promise<void> {
  if (!(await knex.schema.hasColumn('events', 'trace_parent'))) return
  await knex.raw('ALTER TABLE events DROP COLUMN trace_parent')
}
