import { setTimeout as sleep } from 'node:timers/promises'
import { ACCOUNT_CHANGE_MS } from '../auth/recent-accounts.ts'
import { requireAccountOf, requireRole, requireUnbound } from '../auth/operator-rules.ts'
import { isTimeZone } from '../crm/zoned-time.ts'
import { badRequest, clipped } from '../errors.ts'
import { newId } from '../ids.ts'
import { inKeyedTransaction } from '../idempotency/idempotency.ts'
import type { HandlerDeps, OperatorHandler } from '../handlers.ts'
import { cutPage, pageById } from '../paging.ts'
import { findAccount, insertAccount, listAccounts, updateAccount, type Account } from './accounts-repository.ts'

interface AccountHandlers {
  createAccount: OperatorHandler<'createAccount'>
  listAccounts: OperatorHandler<'listAccounts'>
  getAccount: OperatorHandler<'getAccount'>
  updateAccount: OperatorHandler<'updateAccount'>
}

export function accountHandlers({ database, clock }: HandlerDeps): AccountHandlers {
  const { knex } = database
  return {
    async createAccount({ body, operator, audit, idempotency }) {
      requireRole(operator, 'admin')
      requireUnbound(operator)
      const timeZone = body.timeZone ?? 'Asia/Kolkata'
      requireTimeZone(timeZone)
      const account: Account = {
        id: newId(clock.nowMs()),
        name: body.name,
        mode: body.mode ?? 'catch_all',
        timeZone,
        adminEmail: body.adminEmail,
        sandbox: body.sandbox ?? false,
        createdAt: clock.now(),
      }
      return inKeyedTransaction(database, idempotency, async (trx) => {
        await insertAccount(trx, account)
        await audit.record(trx, account.id, { accountId: account.id })
        return { status: 201, body: toAccountRow(account) }
      })
    },

    async listAccounts({ query, operator }) {
      requireRole(operator, 'admin')
      const { limit, afterId } = pageById(query)
      const rows = await listAccounts(knex, operator.accountId ?? undefined, query, afterId, limit + 1)
      const { shown, nextCursor } = cutPage(rows, limit, ({ id }) => [id])
      return { status: 200, body: { accounts: shown.map(toAccountRow), nextCursor } }
    },

    async getAccount({ path, operator }) {
      requireRole(operator, 'staff')
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      return { status: 200, body: toAccountRow(account) }
    },

    /** Webhooks stay as they are, whatever the mode becomes: which calls reach them follows from it (decisions 4). */
    async updateAccount({ path, body, operator, audit }) {
      requireRole(operator, 'admin')
      if (body.timeZone !== undefined) requireTimeZone(body.timeZone)
      const { id } = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const account = await database.transaction(async (trx) => {
        await audit.record(trx, id, { accountId: id })
        return updateAccount(trx, id, body)
      })
      // What its calls may do follows from these, and is known in each process for a while. Also where nothing changes: the call
      // may be the repeat of one whose answer was lost, a moment ago.
      if (body.mode !== undefined || body.timeZone !== undefined) await sleep(ACCOUNT_CHANGE_MS)
      return { status: 200, body: toAccountRow(account) }
    },
  }
}

function requireTimeZone(timeZone: string): void {
  if (isTimeZone(timeZone)) return
  throw badRequest(`unknown time zone ${clipped(timeZone)}`, 'invalid_request', 'timeZone', 'is unknown')
}

function toAccountRow({ id, createdAt, ...rest }: Account) {
  return { accountId: id, ...rest, createdAt: createdAt.toISOString() }
}
