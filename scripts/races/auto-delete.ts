/** As the daemon's recorder writes it: the webhook went after 24 hours without a 2xx. */
import type { Knex } from 'knex'

export async function autoDelete(knex: Knex, now: Date, webhookIds: string[]): Promise<void> {
  await knex('webhooks')
    .whereIn('id', webhookIds)
    .update({
      state: 'auto_deleted',
      epoch: knex.raw('epoch + 1'),
      inactive_from: knex.raw('UTC_TIMESTAMP(6)'),
      first_failure_at: new Date(now.getTime() - 86_400_000),
      failed_attempts: 9,
      last_error: 'HTTP status 503',
      warned_at: new Date(now.getTime() - 43_200_000),
      deactivated_at: now,
      updated_at: now,
    })
  await knex('webhook_party_guards').whereIn('webhook_id', webhookIds).delete()
}
