/**
 * How the lab keeps an account's CRM: telecallers, settings, and what staff are told of.
 */
import { findAccount } from '../accounts/accounts-repository.ts'
import { requireAccountOf, requireRole } from '../auth/operator-rules.ts'
import { notFound } from '../errors.ts'
import { newId } from '../ids.ts'
import { inKeyedTransaction } from '../idempotency/idempotency.ts'
import type { HandlerDeps, OperatorHandler } from '../handlers.ts'
import { cutPage, pageById } from '../paging.ts'
import { getCrmSettings, updateCrmSettings } from './crm-settings-repository.ts'
import { DEFAULT_CRM_SETTINGS } from './crm-settings-rules.ts'
import { listNotifications } from './notifications-repository.ts'
import { insertTelecaller, listTelecallers, updateTelecallerActive, type Telecaller } from './telecallers-repository.ts'

interface CrmKeepingHandlers {
  createTelecaller: OperatorHandler<'createTelecaller'>
  listTelecallers: OperatorHandler<'listTelecallers'>
  deactivateTelecaller: OperatorHandler<'deactivateTelecaller'>
  activateTelecaller: OperatorHandler<'activateTelecaller'>
  getCrmSettings: OperatorHandler<'getCrmSettings'>
  setCrmSettings: OperatorHandler<'setCrmSettings'>
  listStaffNotifications: OperatorHandler<'listStaffNotifications'>
}

export function crmKeepingHandlers({ database, clock }: HandlerDeps): CrmKeepingHandlers {
  const { knex } = database

  async function setActive(
    { path, operator, audit }: Parameters<OperatorHandler<'deactivateTelecaller'>>[0],
    active: boolean,
  ) {
    requireRole(operator, 'admin')
    const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
    const telecaller = await database.transaction(async (trx) => {
      const updated = await updateTelecallerActive(trx, account.id, path.telecallerId, active)
      if (!updated) throw notFound('telecaller not found')
      if (updated.changed) await audit.record(trx, account.id, { telecallerId: updated.telecaller.id })
      return updated.telecaller
    })
    return { status: 200 as const, body: toTelecallerRow(telecaller) }
  }

  return {
    async createTelecaller({ path, body, operator, audit, idempotency }) {
      requireRole(operator, 'admin')
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const telecaller = {
        id: newId(clock.nowMs()),
        accountId: account.id,
        name: body.name,
        active: true,
        createdAt: clock.now(),
      }
      return inKeyedTransaction(database, idempotency, async (trx) => {
        await insertTelecaller(trx, telecaller)
        await audit.record(trx, account.id, { telecallerId: telecaller.id })
        return { status: 201, body: toTelecallerRow(telecaller) }
      })
    },

    async listTelecallers({ path, query, operator }) {
      requireRole(operator, 'admin')
      const { limit, afterId } = pageById(query)
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const rows = await listTelecallers(knex, account.id, afterId, limit + 1)
      const { shown, nextCursor } = cutPage(rows, limit, ({ id }) => [id])
      return { status: 200, body: { telecallers: shown.map(toTelecallerRow), nextCursor } }
    },

    deactivateTelecaller: (call) => setActive(call, false),
    activateTelecaller: (call) => setActive(call, true),

    async getCrmSettings({ path, operator }) {
      requireRole(operator, 'admin')
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      return { status: 200, body: await getCrmSettings(knex, account.id) }
    },

    async setCrmSettings({ path, body, operator, audit }) {
      requireRole(operator, 'admin')
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const settings = {
        assignStrategy: body.assignStrategy ?? DEFAULT_CRM_SETTINGS.assignStrategy,
        customFields: [...new Set(body.customFields ?? DEFAULT_CRM_SETTINGS.customFields)],
        paymentGateways: [...new Set(body.paymentGateways ?? DEFAULT_CRM_SETTINGS.paymentGateways)],
      }
      await database.transaction(async (trx) => {
        await updateCrmSettings(trx, account.id, settings, clock.now())
        await audit.record(trx, account.id, { accountId: account.id })
      })
      return { status: 200, body: settings }
    },

    /** For every role: there is nothing in it but ids. */
    async listStaffNotifications({ path, query, operator }) {
      const { limit, afterId } = pageById(query)
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const rows = await listNotifications(knex, account.id, afterId, limit + 1)
      const { shown, nextCursor } = cutPage(rows, limit, ({ id }) => [id])
      return {
        status: 200,
        body: {
          notifications: shown.map(({ id, kind, labId, entryId, createdAt }) => ({
            notificationId: id,
            kind,
            labID: labId,
            leadId: entryId,
            createdAt: createdAt.toISOString(),
          })),
          nextCursor,
        },
      }
    },
  }
}

function toTelecallerRow({ id, createdAt, ...rest }: Telecaller) {
  return { telecallerId: id, ...rest, createdAt: createdAt.toISOString() }
}
