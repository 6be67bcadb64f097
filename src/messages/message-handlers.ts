/**
 * How the lab sends a message to a patient by hand.
 */
import { findAccount } from '../accounts/accounts-repository.ts'
import { requireAccountOf, requireRole } from '../auth/operator-rules.ts'
import { findLab } from '../catalogue/labs-repository.ts'
import { findPartyOfField } from '../catalogue/parties-repository.ts'
import { unknownParty } from '../catalogue/party-rules.ts'
import { lockEntry } from '../crm/staff-entries-repository.ts'
import { unknownId } from '../errors.ts'
import { inKeyedTransaction } from '../idempotency/idempotency.ts'
import { newId } from '../ids.ts'
import type { HandlerDeps, OperatorHandler } from '../handlers.ts'
import { recordMessage } from './message-recording.ts'
import { messageReply } from './message-reply.ts'
import { MESSAGE_PARTY_FIELDS, messageOfRequest, requireSoundMessage } from './message-request-rules.ts'

interface MessageHandlers {
  recordMessage: OperatorHandler<'recordMessage'>
}

export function messageHandlers({
  database,
  clock,
  hint,
}: Pick<HandlerDeps, 'database' | 'clock' | 'hint'>): MessageHandlers {
  const { knex } = database
  return {
    async recordMessage({ path, body, operator, audit, idempotency }) {
      requireRole(operator, 'staff')
      requireSoundMessage(body)
      const account = requireAccountOf(operator, await findAccount(knex, path.accountId))
      const lab = await findLab(knex, account.id, body.labID)
      if (!lab) throw unknownId('lab', body.labID, 'labID')
      for (const field of MESSAGE_PARTY_FIELDS) {
        const partyId = body[field]
        if (partyId === undefined) continue
        if (!(await findPartyOfField(knex, account.id, field, partyId))) throw unknownParty(field, partyId)
      }
      const eventId = newId(clock.nowMs())
      const answer = await inKeyedTransaction(database, idempotency, async (trx) => {
        // Under its lock, as all that is told of an entry: nothing names a patient who has been erased.
        const entry = body.leadId === undefined ? undefined : await lockEntry(trx, account.id, body.leadId)
        if (body.leadId !== undefined && entry?.labId !== lab.id) throw unknownId('lead', body.leadId, 'leadId')
        const message = messageOfRequest(body, eventId, account.id, entry)
        await audit.record(trx, account.id, { labID: lab.id, messageId: eventId })
        const { createdAt, type } = await recordMessage(trx, eventId, message, clock.now())
        return messageReply({ id: eventId, labId: lab.id, type, createdAt })
      })
      hint()
      return answer
    },
  }
}
