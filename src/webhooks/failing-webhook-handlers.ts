import { findAccount } from '../accounts/accounts-repository.ts'
import { requireAccountOf, requireRole } from '../auth/operator-rules.ts'
import type { components } from '../generated/operator.ts'
import { firstIdOf, timeOfId } from '../ids.ts'
import type { HandlerDeps, OperatorHandler } from '../handlers.ts'
import { cutPage, pageOf, requireIds, type PageQuery } from '../paging.ts'
import { listFailingWebhooks, type FailingPosition, type FailingWebhook } from './failing-webhooks-repository.ts'

interface FailingWebhookHandlers {
  listFailingWebhooks: OperatorHandler<'listFailingWebhooks'>
  listAccountFailingWebhooks: OperatorHandler<'listAccountFailingWebhooks'>
}

interface FailingPage {
  limit: number
  after: FailingPosition | undefined
}

export function failingWebhookHandlers({ database: { knex } }: Pick<HandlerDeps, 'database'>): FailingWebhookHandlers {
  async function page(accountId: string | null, { limit, after }: FailingPage) {
    const rows = await listFailingWebhooks(knex, accountId, after, limit + 1)
    const { shown, nextCursor } = cutPage(rows, limit, ({ firstFailureAt, id }) => [
      firstIdOf(firstFailureAt.getTime()),
      id,
    ])
    return { status: 200 as const, body: { webhooks: shown.map(toRow), nextCursor } }
  }

  return {
    async listFailingWebhooks({ query, operator }) {
      requireRole(operator, 'staff')
      return page(operator.accountId, failingPageOf(query))
    },

    async listAccountFailingWebhooks({ path, query, operator }) {
      requireRole(operator, 'staff')
      const asked = failingPageOf(query)
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      return page(account.id, asked)
    },
  }
}

/** The time of the first failure goes as the first id of its millisecond. */
function failingPageOf(query: PageQuery): FailingPage {
  const { limit, after } = pageOf(query, 2)
  const [time, id] = requireIds(after ?? [])
  return { limit, after: id === undefined ? undefined : { firstFailureAt: new Date(timeOfId(time!)), id } }
}

function toRow(webhook: FailingWebhook): components['schemas']['FailingWebhook'] {
  const { corporateId, organizationId, oldestEventAt, nextAttemptAt } = webhook
  return {
    accountId: webhook.accountId,
    labID: webhook.labId,
    webhookId: webhook.id,
    endpoint: webhook.endpoint,
    events: webhook.events,
    ...(corporateId === null ? {} : { corporateUser: corporateId }),
    ...(organizationId === null ? {} : { organization: organizationId }),
    firstFailureAt: webhook.firstFailureAt.toISOString(),
    failedAttempts: webhook.failedAttempts,
    lastError: webhook.lastError,
    warned: webhook.warned,
    backlog: webhook.backlog,
    backlogIsMore: webhook.backlogIsMore,
    ...(oldestEventAt === null ? {} : { oldestEventAt: oldestEventAt.toISOString() }),
    ...(nextAttemptAt === null ? {} : { nextAttemptAt: nextAttemptAt.toISOString() }),
  }
}
