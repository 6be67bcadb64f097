/**
 * The normal way of a message: to MESSAGE_GATEWAY_URL, or, where none is set (development), to a file under the data folder.
 */
import { appendToOutbox, postToGateway } from '../gateway-request.ts'
import type { components } from '../generated/client.ts'
import { publicEventId } from '../ids.ts'

/** As a webhook would get it in `data`. */
export type MessageContent = components['schemas']['MessagePayload']

export interface MessageGateway {
  /** What it takes comes to a person's telephone. */
  readonly reachesPeople?: boolean
  /** Resolves when the other side has taken it. @throws GatewayFault when it has not */
  send(message: MessageContent): Promise<void>
}

/** From the start of the call to the end of the answer. Shorter than the shortest wait before a further try. */
const DEADLINE_MS = 5000

export interface MessageGatewayOptions {
  url: string | undefined
  dataDir: string
  now: () => Date
  deadlineMs?: number
}

export function createMessageGateway(options: MessageGatewayOptions): MessageGateway {
  const { url, dataDir, now, deadlineMs = DEADLINE_MS } = options
  if (!url) {
    return {
      send: (message) =>
        appendToOutbox(dataDir, 'messages.ndjson', { at: now().toISOString(), ...outgoingMessage(message) }),
    }
  }
  return {
    reachesPeople: true,
    send: (message) =>
      postToGateway({
        url: new URL(url),
        idempotencyKey: publicEventId(message.messageId),
        content: outgoingMessage(message),
        deadlineMs,
      }),
  }
}

/** What the gateway gets: who, what, and nothing that it has no use for. */
function outgoingMessage({ messageId, kind, recipient, template, text, variables, attachmentUrl }: MessageContent) {
  const id = publicEventId(messageId)
  return { id, to: recipient.contact, name: recipient.name, kind, template, text, variables, attachmentUrl }
}
