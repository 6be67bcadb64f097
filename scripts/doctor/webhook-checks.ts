/**
 * Webhooks: state, secrets, and the guards of their parties.
 */
import type { SqlCheck } from './finding.ts'

const GUARDED = `w.state = 'active' AND COALESCE(w.corporate_id, w.organization_id) IS NOT NULL`

export const WEBHOOK_CHECKS: SqlCheck[] = [
  {
    check: 'webhook_state_incoherent',
    sql: `SELECT id, state FROM webhooks WHERE state NOT IN ('active', 'auto_deleted', 'deleted')
          OR (state = 'active' AND (inactive_from IS NOT NULL OR deactivated_at IS NOT NULL))
          OR (state <> 'active' AND inactive_from IS NULL)
          OR (state = 'auto_deleted' AND (deactivated_at IS NULL OR first_failure_at IS NULL OR last_error IS NULL))
          OR (first_failure_at IS NULL AND (failed_attempts > 0 OR last_error IS NOT NULL OR warned_at IS NOT NULL))
          OR (first_failure_at IS NOT NULL AND (failed_attempts = 0 OR last_error IS NULL OR warned_at < first_failure_at))
          OR (corporate_id IS NOT NULL AND organization_id IS NOT NULL)`,
    subject: ['id'],
    sentence: ({ id, state }) => `the row of webhook ${id} (${state}) contradicts itself`,
  },
  {
    check: 'webhook_without_secret',
    sql: `SELECT w.id FROM webhooks w WHERE w.state <> 'deleted'
          AND (SELECT COUNT(*) FROM webhook_secrets s WHERE s.webhook_id = w.id AND s.expires_at IS NULL) <> 1`,
    subject: ['id'],
    sentence: ({ id }) => `webhook ${id} has not exactly one current secret: nothing can be signed for it`,
  },
  {
    check: 'webhook_without_events',
    sql: `SELECT w.id FROM webhooks w LEFT JOIN webhook_events s ON s.webhook_id = w.id AND s.lab_id = w.lab_id
          WHERE w.state <> 'deleted' AND s.webhook_id IS NULL`,
    subject: ['id'],
    sentence: ({ id }) => `webhook ${id} is registered for no event of its lab`,
  },
  {
    check: 'party_guard_missing',
    sql: `SELECT w.id, s.event_type FROM webhooks w JOIN webhook_events s ON s.webhook_id = w.id
          LEFT JOIN webhook_party_guards g ON g.account_id = w.account_id AND g.lab_id = w.lab_id
            AND g.party_id = COALESCE(w.corporate_id, w.organization_id) AND g.event_type = s.event_type AND g.webhook_id = w.id
          WHERE ${GUARDED} AND g.webhook_id IS NULL`,
    subject: ['id', 'event_type'],
    sentence: ({ id, event_type }) =>
      `webhook ${id} does not keep its party’s place for ${event_type}: a second one could take it`,
  },
  {
    check: 'party_guard_left_over',
    sql: `SELECT g.webhook_id, g.event_type FROM webhook_party_guards g
          LEFT JOIN webhooks w ON w.id = g.webhook_id AND w.account_id = g.account_id AND w.lab_id = g.lab_id
            AND COALESCE(w.corporate_id, w.organization_id) = g.party_id AND ${GUARDED}
          LEFT JOIN webhook_events s ON s.webhook_id = w.id AND s.event_type = g.event_type
          WHERE s.webhook_id IS NULL`,
    subject: ['webhook_id', 'event_type'],
    sentence: ({ webhook_id, event_type }) =>
      `the place for ${event_type} is kept by ${webhook_id}, which is no active webhook of that party for it: nobody can register`,
  },
  {
    check: 'inactivity_out_of_order',
    sql: `SELECT i.webhook_id, i.inactive_from FROM webhook_inactivity i JOIN webhooks w ON w.id = i.webhook_id
          WHERE i.inactive_from > i.active_from OR i.active_from > w.active_from`,
    subject: ['webhook_id', 'inactive_from'],
    sentence: ({ webhook_id, inactive_from }) =>
      `webhook ${webhook_id} was auto-deleted from ${inactive_from.toISOString()} until before that, or until after its activity`,
  },
]
