/**
 * What a request to send a message must have, and the message that it makes. Pure.
 */
import type { Entry } from '../crm/entry-rules.ts'
import { badRequest, DomainError } from '../errors.ts'
import type { NewMessage } from '../events/message-payloads.ts'
import type { components } from '../generated/operator.ts'
import { fullName } from '../patients/person-name.ts'

export type MessageRequest = components['schemas']['MessageRequest']

export const MESSAGE_PARTY_FIELDS = ['corporateUser', 'referredOrganization', 'referredHospitalOrganization'] as const

const RECORD_FIELDS = ['integratorID', ...MESSAGE_PARTY_FIELDS] as const

/** @throws 400 for what the request alone shows, beyond its schema */
export function requireSoundMessage(body: MessageRequest): void {
  if (body.attachmentUrl !== undefined && !isLink(body.attachmentUrl)) {
    const fault = 'must be an absolute URL that begins with https:// and has a host'
    throw badRequest(`attachmentUrl ${fault}`, 'invalid_request', 'attachmentUrl', fault)
  }
  if (body.leadId === undefined) {
    if (body.recipient === undefined) throw recipientRequired('is required where no leadId is sent')
    return
  }
  const sent = RECORD_FIELDS.filter((field) => body[field] !== undefined)
  if (sent.length === 0) return
  const fault = 'is taken from the entry: it must not be sent with leadId'
  throw new DomainError('bad_request', 'invalid_request', `${sent[0]} ${fault}`, {
    fields: sent.map((field) => ({ field, message: fault })),
  })
}

/**
 * Spaces, controls and backslashes are what parsers disagree about; a third slash they skip, and take what follows for the host.
 */
function isLink(text: string): boolean {
  return /^https:\/\/[^/]/.test(text) && !/[\s\\\u0000-\u001f\u007f]/.test(text) && URL.canParse(text)
}

/**
 * @param entry the one that `leadId` names
 * @throws 400 where nobody is there to send it to
 */
export function messageOfRequest(
  body: MessageRequest,
  messageId: string,
  accountId: string,
  entry: Entry | undefined,
): NewMessage {
  const { type, template, text, variables = {}, attachmentUrl = null } = body
  const subject: NewMessage['subject'] = entry
    ? { kind: 'entry', ...entry }
    : {
        kind: 'message',
        id: messageId,
        version: 1,
        accountId,
        labId: body.labID,
        integratorId: body.integratorID ?? null,
        corporateId: body.corporateUser ?? null,
        doctorId: body.referredOrganization ?? null,
        hospitalId: body.referredHospitalOrganization ?? null,
      }
  return { type, subject, recipient: recipientOf(body, entry), template, text, variables, attachmentUrl }
}

function recipientOf({ recipient }: MessageRequest, entry: Entry | undefined): NewMessage['recipient'] {
  if (recipient) return { contact: recipient.contact, name: recipient.name }
  if (!entry?.contact) throw recipientRequired('is required where the entry has no contact')
  return { contact: entry.contact, name: fullName(entry.firstName, entry.lastName) }
}

function recipientRequired(fault: string): DomainError {
  return badRequest(`recipient ${fault}`, 'recipient_required', 'recipient', fault)
}
