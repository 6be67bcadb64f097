/**
 * Who did what when. An entry is written in the transaction of the action, so that neither is there without the other.
 */
import type { Knex } from 'knex'

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
