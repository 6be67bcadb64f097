/**
 * Leads and bookings as staff make, find and complete them.
 */
import { sendThrough } from '../../db/batch.ts'
import { findAccountFor } from '../auth/staff-access.ts'
import { findLab } from '../catalogue/labs-repository.ts'
import { notFound, unknownId } from '../errors.ts'
import { inKeyedTransaction } from '../idempotency/idempotency.ts'
import type { HandlerDeps, OperatorHandler } from '../handlers.ts'
import { cutPage, pageById } from '../paging.ts'
import { convertLead } from './booking-actions.ts'
import { getCrmSettings } from './crm-settings-repository.ts'
import { createEntryIn } from './entry-creation.ts'
import { paymentMethodFault, requireScheduledAt, requireSoundEntry, type EntryRequest } from './entry-rules.ts'
import { mapEntryItems } from './item-mapping.ts'
import { findEntry, listEntries } from './staff-entries-repository.ts'
import { toStaffEntry } from './staff-entry-rows.ts'
import { areIdsShaped } from './staff-lists.ts'

interface StaffEntryHandlers {
  createStaffEntry: OperatorHandler<'createStaffEntry'>
  listEntries: OperatorHandler<'listEntries'>
  getEntry: OperatorHandler<'getEntry'>
  mapEntryItems: OperatorHandler<'mapEntryItems'>
  convertLead: OperatorHandler<'convertLead'>
}

export function staffEntryHandlers({ database, clock, hint }: HandlerDeps): StaffEntryHandlers {
  const { knex } = database
  return {
    async createStaffEntry({ path, body, operator, audit, idempotency }) {
      const account = await findAccountFor(knex, operator, 'staff', path.accountId)
      const { labID, ...rest } = body
      const wish: EntryRequest = { ...rest, branchID: labID }
      const scheduledAt = requireSoundEntry(wish, account)
      if (!(await findLab(knex, account.id, labID))) throw unknownId('lab', labID, 'labID')
      const answer = await inKeyedTransaction(
        database,
        idempotency,
        async (trx) => {
          const entry = await createEntryIn(
            sendThrough(trx),
            { account, body: wish, scheduledAt, now: clock.now(), isOfStaff: true },
            () => [],
          )
          await audit.record(trx, account.id, { leadId: entry.id })
          return { status: 201, body: toStaffEntry(entry) }
        },
        { personRecordIdOf: ({ leadId }) => leadId },
      )
      hint()
      return answer
    },

    async listEntries({ path, query, operator }) {
      const { limit, afterId } = pageById(query)
      const account = await findAccountFor(knex, operator, 'staff', path.accountId)
      const filter = {
        labId: query.labID,
        phase: query.phase,
        unmapped: String(query.unmapped) === 'true',
        after: afterId,
      }
      const rows = areIdsShaped(query.labID) ? await listEntries(knex, account.id, filter, limit + 1) : []
      const { shown, nextCursor } = cutPage(rows, limit, ({ id }) => [id])
      return { status: 200, body: { entries: shown.map(toStaffEntry), nextCursor } }
    },

    async getEntry({ path, operator }) {
      const account = await findAccountFor(knex, operator, 'staff', path.accountId)
      const entry = await findEntry(knex, account.id, path.leadId)
      if (!entry) throw notFound('entry not found')
      return { status: 200, body: toStaffEntry(entry) }
    },

    async mapEntryItems({ path, body, operator, audit }) {
      const account = await findAccountFor(knex, operator, 'staff', path.accountId)
      const entry = await database.transaction(async (trx) => {
        const call = { trx, accountId: account.id, leadId: path.leadId, now: clock.now() }
        const mapped = await mapEntryItems(call, body.items)
        await audit.record(trx, account.id, { leadId: mapped.id })
        return mapped
      })
      return { status: 200, body: toStaffEntry(entry) }
    },

    async convertLead({ path, body, operator, audit }) {
      const account = await findAccountFor(knex, operator, 'staff', path.accountId)
      const { bookingType, paymentStatus, paymentMethod } = body
      const scheduledAt = body.scheduledAt === undefined ? undefined : requireScheduledAt(body.scheduledAt, account)
      const fault = paymentMethodFault(paymentMethod, await getCrmSettings(knex, account.id))
      if (fault) throw fault
      const booking = await database.transaction(async (trx) => {
        const call = { trx, accountId: account.id, leadId: path.leadId, now: clock.now() }
        const converted = await convertLead(call, { bookingType, scheduledAt, paymentStatus, paymentMethod })
        await audit.record(trx, account.id, { leadId: converted.id })
        return converted
      })
      hint()
      return { status: 200, body: toStaffEntry(booking) }
    },
  }
}
