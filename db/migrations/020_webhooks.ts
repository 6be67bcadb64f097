import type { Knex } from 'knex'
import { ID, ROUTING_TIME, TABLE, TIME, WORD } from '../column-types.ts'

/** Registered endpoints: settings, the window of routing and health. Whether something is due stands in lanes. */
export async function up(knex: Knex): Promise<void> {
  await knex.raw(`
    CREATE TABLE IF NOT EXISTS webhooks (
      id ${ID} NOT NULL PRIMARY KEY,
      account_id ${ID} NOT NULL,
      lab_id ${ID} NOT NULL,
      corporate_id ${ID} NULL,
      organization_id ${ID} NULL,
      endpoint VARCHAR(2048) NOT NULL,
      state ${WORD} NOT NULL,
      epoch INT UNSIGNED NOT NULL DEFAULT 1,
      active_from ${ROUTING_TIME} NOT NULL,
      inactive_from ${ROUTING_TIME} NULL,
      first_failure_at ${TIME} NULL,
      failed_attempts INT UNSIGNED NOT NULL DEFAULT 0,
      last_error VARCHAR(200) NULL,
      warned_at ${TIME} NULL,
      deactivated_at ${TIME} NULL,
      created_at ${TIME} NOT NULL,
      updated_at ${TIME} NOT NULL,
      KEY webhooks_lab (lab_id, state, id),
      KEY webhooks_failing (state, first_failure_at),
      KEY webhooks_endpoint (account_id, state, endpoint(191))
    ) ${TABLE}`)
}

export async function down(knex: Knex): Promise<void> {
  await knex.raw('DROP TABLE IF EXISTS webhooks')
}
