import type { Knex } from 'knex'

/** All attempts, for those who look at the log as a whole. What is asked often reads the two tables by their keys. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE OR REPLACE SQL SECURITY INVOKER VIEW attempts AS
      SELECT webhook_id, event_id, n, seq, started_at, recorded_at, duration_ms, class, status, error, answer
      FROM earlier_attempts
      UNION ALL
      SELECT webhook_id, event_id, attempts, seq, started_at, ended_at, duration_ms, class, http_status, error, answer
      FROM deliveries WHERE class IS NOT NULL`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP VIEW IF EXISTS attempts')
}
