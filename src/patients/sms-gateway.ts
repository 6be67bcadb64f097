/**
 * Hands a text message over: to SMS_GATEWAY_URL, or, where none is set (development), to a file under the data folder.
 */
import { appendToOutbox, postToGateway } from '../gateway-request.ts'

export interface OutgoingSms {
  /** The same on every try, for the gateway to recognise a repeat by. */
  id: string
  /** 10 digits. */
  to: string
  text: string
}

export interface SmsGateway {
  /** Resolves when the other side has taken it. @throws GatewayFault when it has not */
  send(sms: OutgoingSms): Promise<void>
}

/** From the start of the call to the end of the answer. */
const DEADLINE_MS = 5000

export interface SmsGatewayOptions {
  url: string | undefined
  dataDir: string
  now: () => Date
  deadlineMs?: number
}

export function createSmsGateway({ url, dataDir, now, deadlineMs = DEADLINE_MS }: SmsGatewayOptions): SmsGateway {
  if (!url) {
    return { send: ({ to, text }) => appendToOutbox(dataDir, 'sms.ndjson', { at: now().toISOString(), to, text }) }
  }
  return {
    send: ({ id, to, text }) =>
      postToGateway({ url: new URL(url), idempotencyKey: id, content: { to, text }, deadlineMs }),
  }
}
