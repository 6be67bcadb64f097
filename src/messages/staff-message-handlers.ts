/**
 * Messages that staff send to patients.
 */
import { findAccountFor } from '../auth/staff-access.ts'
import type { MessageEvent } from '../events/message-payloads.ts'
import { inKeyedTransaction } from '../idempotency/idempotency.ts'
import type { HandlerDeps, OperatorHandler } from '../handlers.ts'
import { publishedLinks } from '../signed-link.ts'
import { messageReply } from './message-reply.ts'
import {
  sendBill,
  sendBooking,
  sendPhlebotomist,
  sendQuotation,
  sendReport,
  type MessageCall,
} from './staff-messages.ts'

interface StaffMessageHandlers {
  sendReport: OperatorHandler<'sendReport'>
  sendBill: OperatorHandler<'sendBill'>
  sendBooking: OperatorHandler<'sendBooking'>
  sendPhlebotomist: OperatorHandler<'sendPhlebotomist'>
  sendQuotation: OperatorHandler<'sendQuotation'>
}

type SendingCall = Pick<Parameters<OperatorHandler<'sendBill'>>[0], 'operator' | 'audit' | 'idempotency'>

export function staffMessageHandlers({ database, clock, hint, keys, baseUrl }: HandlerDeps): StaffMessageHandlers {
  /** @param about the record, by its name on the wire */
  async function send(
    { operator, audit, idempotency }: SendingCall,
    accountId: string,
    about: Record<string, string>,
    record: (call: MessageCall) => Promise<MessageEvent>,
  ) {
    const account = await findAccountFor(database.knex, operator, 'staff', accountId)
    const answer = await inKeyedTransaction(database, idempotency, async (trx) => {
      const message = await record({ trx, account, accountId: account.id, now: clock.now() })
      await audit.record(trx, account.id, { ...about, messageId: message.id })
      return messageReply(message)
    })
    hint()
    return answer
  }

  return {
    sendReport: async (call) => {
      const { accountId, reportId } = call.path
      return send(call, accountId, { reportId }, (message) =>
        sendReport(message, reportId, publishedLinks(keys, baseUrl())),
      )
    },
    sendBill: async (call) => {
      const { accountId, billId } = call.path
      return send(call, accountId, { billId }, (message) => sendBill(message, billId, publishedLinks(keys, baseUrl())))
    },
    sendBooking: async (call) => {
      const { accountId, leadId } = call.path
      return send(call, accountId, { leadId }, (message) => sendBooking(message, leadId))
    },
    sendPhlebotomist: async (call) => {
      const { accountId, leadId } = call.path
      return send(call, accountId, { leadId }, (message) => sendPhlebotomist(message, leadId))
    },
    sendQuotation: async (call) => {
      const { accountId, leadId } = call.path
      return send(call, accountId, { leadId }, (message) =>
        sendQuotation(message, leadId, publishedLinks(keys, baseUrl())),
      )
    },
  }
}
