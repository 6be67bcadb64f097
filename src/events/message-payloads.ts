/**
 * The only constructor of what a `*.send` event delivers, typed from the contract: the receiver sends the message in our
 * place, so it carries all that is needed for it. Sent the normal way, the gateway gets the same.
 */
import type { components } from '../generated/client.ts'
import { partiesOf, recorded, type Subject } from './event-body.ts'
import type { EventType, RecordedEvent } from './event-types.ts'

type Schemas = components['schemas']

export type MessageType = Extract<EventType, `${string}.send`>

export function isMessageType(type: string): type is MessageType {
  return type.endsWith('.send')
}

/** The same as a condition. @param column that has an event's type */
export const isMessageIn = (column: string): string => `${column} LIKE '%.send'`

/** The record that a message is about, at the version at which it is about it; `message`: none but the message itself. */
export interface MessageSubject extends Subject {
  kind: 'entry' | 'bill' | 'report' | 'message'
  version: number
}

export interface NewMessage {
  type: MessageType
  subject: MessageSubject
  /** Other records that it concerns, such as the bill of a report. */
  related?: { leadId?: string; billId?: string; reportId?: string }
  recipient: { contact: string; name: string }
  /** The name of the WhatsApp template. */
  template: string
  /** As the patient is to read it. */
  text: string
  /** The template's. */
  variables: Record<string, string>
  /** A signed link that expires, of at most 4,096 characters; null: nothing is attached. */
  attachmentUrl: string | null
}

export interface MessageEvent extends RecordedEvent {
  type: MessageType
  createdAt: Date
}

/** @param at the time of the event */
export function messageSend(eventId: string, message: NewMessage, at: Date): MessageEvent {
  const { type, subject, related = {}, recipient, template, text, attachmentUrl } = message
  const about = subject.kind === 'message' ? {} : { [ID_FIELD_OF_KIND[subject.kind]]: subject.id }
  const event = recorded(type, eventId, at, subject, (cutter): Omit<Schemas['MessageData'], 'truncated'> => {
    const { items, count } = cutter.list(Object.entries(message.variables))
    return {
      message: {
        messageId: eventId,
        version: subject.version,
        kind: type.slice(0, -'.send'.length) as Schemas['MessagePayload']['kind'],
        recipient: { contact: recipient.contact, name: cutter.name(recipient.name) },
        template: cutter.name(template),
        text: cutter.text(text),
        variables: Object.fromEntries(items.map(([name, value]) => [cutter.name(name), cutter.value(value)])),
        ...(count === undefined ? {} : { variablesCount: count }),
        attachmentUrl,
        billId: null,
        leadId: null,
        reportId: null,
        ...related,
        ...about,
        ...partiesOf(subject),
      },
    }
  })
  return { ...event, createdAt: at }
}

const ID_FIELD_OF_KIND = { entry: 'leadId', bill: 'billId', report: 'reportId' } as const
