/**
 * Who did what when. An entry is written in the transaction of the action, so that neither is there without the other.
 */
import type { Knex } from 'knex'
import { firstIdOf, isIdShaped } from '../ids.ts'

export interface AuditEntry {
  id: string
  /** Null where the action is about no account. */
  accountId: string | null
  operatorKeyId: string
  /** The operation's id in the contract. */
  operation: string
  /** Ids of what was acted on, by their names on the wire; never a patient's data. */
  targets: Record<string, string>
  requestId: string
  createdAt: Date
}

/** What a list of entries is narrowed to; left out: everything. */
export interface AuditFilter {
  accountId?: string | undefined
  operatorKeyId?: string | undefined
  operation?: string | undefined
  from?: Date | undefined
  /** Not included. */
  to?: Date | undefined
}

export async function insertAuditEntry(trx: Knex.Transaction, entry: AuditEntry): Promise<void> {
  await trx('audit_entries').insert({
    id: entry.id,
    account_id: entry.accountId,
    operator_key_id: entry.operatorKeyId,
    operation: entry.operation,
    targets: JSON.stringify(entry.targets),
    request_id: entry.requestId,
    created_at: entry.createdAt,
  })
}

/**
 * The newest first.
 * @param beforeId the id of the last one seen; undefined: from the newest
 */
export async function listAuditEntries(
  knex: Knex,
  filter: AuditFilter,
  beforeId: string | undefined,
  limit: number,
): Promise<AuditEntry[]> {
  const ids = [filter.accountId, filter.operatorKeyId]
  if (ids.some((id) => id !== undefined && !isIdShaped(id)) || !isWord(filter.operation ?? '')) return []
  const query = knex('audit_entries').orderBy('id', 'desc').limit(limit)
  if (filter.accountId !== undefined) query.where({ account_id: filter.accountId })
  if (filter.operatorKeyId !== undefined) query.where({ operator_key_id: filter.operatorKeyId })
  if (filter.operation !== undefined) query.where({ operation: filter.operation })
  // By the id as well, which has a key: entries of old are not found by a walk over all that have come since.
  if (filter.from !== undefined)
    query.where('created_at', '>=', filter.from).where('id', '>=', idAbout(filter.from, -1))
  if (filter.to !== undefined) query.where('created_at', '<', filter.to).where('id', '<', idAbout(filter.to, 1))
  if (beforeId !== undefined) query.where('id', '<', beforeId)
  return (await query).map((row) => ({
    id: row.id,
    accountId: row.account_id,
    operatorKeyId: row.operator_key_id,
    operation: row.operation,
    targets: JSON.parse(row.targets),
    requestId: row.request_id,
    createdAt: row.created_at,
  }))
}

/** An entry's id was made in the moment of its time; the clock may have been looked at twice. */
function idAbout(time: Date, seconds: number): string {
  return firstIdOf(Math.max(0, time.getTime() + seconds * 1000))
}

/** What is no word of the contract has no entry, and might not be comparable with the column. */
function isWord(operation: string): boolean {
  return /^[A-Za-z0-9-]*$/.test(operation)
}
