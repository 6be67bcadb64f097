/**
 * What staff are told of. No webhook events: these are rows that staff list.
 */
import type { Knex } from 'knex'
import type { Statement } from '../../db/batch.ts'

export type NotificationKind = 'NEW_LEAD' | 'BOOKING_CONFIRMED'

export interface StaffNotification {
  id: string
  accountId: string
  labId: string
  kind: NotificationKind
  entryId: string
  createdAt: Date
}

/** Belongs in the transaction of the entry, so that neither is there without the other. */
export function insertNotificationsStatement(notifications: StaffNotification[]): Statement {
  const rows = notifications.map(({ id, accountId, labId, kind, entryId, createdAt }) => [
    ...[id, accountId, labId, kind, entryId, createdAt],
  ])
  return {
    sql: 'INSERT INTO staff_notifications (id, account_id, lab_id, kind, entry_id, created_at) VALUES ?',
    values: [rows],
  }
}

/**
 * The newest first.
 * @param before the id of the last one seen; undefined: from the newest
 */
export async function listNotifications(
  knex: Knex,
  accountId: string,
  before: string | undefined,
  limit: number,
): Promise<StaffNotification[]> {
  const query = knex('staff_notifications').where({ account_id: accountId }).orderBy('id', 'desc').limit(limit)
  if (before !== undefined) query.where('id', '<', before)
  return (await query).map((row) => ({
    id: row.id,
    accountId: row.account_id,
    labId: row.lab_id,
    kind: row.kind,
    entryId: row.entry_id,
    createdAt: row.created_at,
  }))
}
