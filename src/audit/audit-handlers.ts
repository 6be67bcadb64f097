import { requireRole } from '../auth/operator-rules.ts'
import type { HandlerDeps, OperatorHandler } from '../handlers.ts'
import { cutPage, pageById } from '../paging.ts'
import { timeOf } from '../query-time.ts'
import { listAuditEntries, type AuditEntry } from './audit-repository.ts'

interface AuditHandlers {
  listAuditEntries: OperatorHandler<'listAuditEntries'>
}

export function auditHandlers({ database: { knex } }: HandlerDeps): AuditHandlers {
  return {
    async listAuditEntries({ query, operator }) {
      requireRole(operator, 'admin')
      const { limit, afterId } = pageById(query)
      // A bound key asks about its own account, whatever it names: another one has no entries for it.
      const isForeign = operator.accountId !== null && (query.accountId ?? operator.accountId) !== operator.accountId
      const filter = {
        accountId: query.accountId ?? operator.accountId ?? undefined,
        operatorKeyId: query.keyId,
        operation: query.operation,
        from: query.from === undefined ? undefined : new Date(timeOf('from', query.from)),
        to: query.to === undefined ? undefined : new Date(timeOf('to', query.to)),
      }
      const rows = isForeign ? [] : await listAuditEntries(knex, filter, afterId, limit + 1)
      const { shown, nextCursor } = cutPage(rows, limit, ({ id }) => [id])
      return { status: 200, body: { auditEntries: shown.map(toAuditRow), nextCursor } }
    },
  }
}

function toAuditRow({ id, accountId, operatorKeyId, operation, targets, requestId, createdAt }: AuditEntry) {
  return {
    auditEntryId: id,
    accountId,
    keyId: operatorKeyId,
    operation,
    targets,
    requestId,
    createdAt: createdAt.toISOString(),
  }
}
