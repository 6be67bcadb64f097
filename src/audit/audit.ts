import type { Knex } from 'knex'
import type { OperatorKey } from '../auth/operator-keys-repository.ts'
import type { Clock } from '../clock.ts'
import { newId } from '../ids.ts'
import { insertAuditEntry } from './audit-repository.ts'

/** Keeps who did what: every operation that changes something calls it once, in its transaction. */
export interface Audit {
  /**
   * @param accountId null where the action is about no account
   * @param targets ids of what was acted on, by their names on the wire; never a patient's data
   */
  record(trx: Knex.Transaction, accountId: string | null, targets: Record<string, string>): Promise<void>
}

export function auditOf(clock: Clock, operator: OperatorKey, operation: string, requestId: string): Audit {
  return {
    record: async (trx, accountId, targets) => {
      const now = clock.now()
      const id = newId(now.getTime())
      const entry = { id, accountId, operatorKeyId: operator.id, operation, targets, requestId, createdAt: now }
      await insertAuditEntry(trx, entry)
    },
  }
}
