/**
 * Hands a text message over: to SMS_GATEWAY_URL, or, where none is set (development), to a file under the data folder. The
 * gateway's answer is a stranger's: its status counts, its body is read for a moment and thrown away.
 */
import { appendFile, mkdir } from 'node:fs/promises'
import { request as httpRequest } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { join } from 'node:path'

export interface OutgoingSms {
  /** The same on every try, for the gateway to recognise a repeat by. */
  id: string
  /** 10 digits. */
  to: string
  text: string
}

export interface SmsGateway {
  /** Resolves when the other side has taken it. @throws SmsNotTaken or a connection's fault when it has not */
  send(sms: OutgoingSms): Promise<void>
}

/** From the start of the call to the end of the answer's head. */
const DEADLINE_MS = 5000
const BODY_READ_BYTES = 16_384

/** `code` says why, for the log; nothing of what the gateway said. */
export class SmsNotTaken extends Error {
  readonly code: string
  constructor(code: string) {
    super('the SMS gateway has not taken a message')
    this.code = code
  }
}

export interface SmsGatewayOptions {
  url: string | undefined
  dataDir: string
  now: () => Date
  deadlineMs?: number
}

export function createSmsGateway({ url, dataDir, now, deadlineMs = DEADLINE_MS }: SmsGatewayOptions): SmsGateway {
  return url ? { send: (sms) => post(new URL(url), sms, deadlineMs) } : fileGateway(dataDir, now)
}

function post(url: URL, { id, to, text }: OutgoingSms, deadlineMs: number): Promise<void> {
  const body = Buffer.from(JSON.stringify({ to, text }))
  const send = url.protocol === 'https:' ? httpsRequest : httpRequest
  return new Promise((resolve, reject) => {
    const outgoing = send(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'content-length': body.length, 'idempotency-key': id },
    })
    // One deadline of our own: Node's time limits start again with every byte that drips in.
    const deadline = setTimeout(() => outgoing.destroy(new SmsNotTaken('ETIMEDOUT')), deadlineMs)
    outgoing.on('response', (incoming) => {
      const status = incoming.statusCode ?? 0
      if (status >= 200 && status <= 299) resolve()
      else reject(new SmsNotTaken(`HTTP_${status}`))
      let readBytes = 0
      incoming.on('data', (chunk: Buffer) => {
        readBytes += chunk.length
        if (readBytes > BODY_READ_BYTES) incoming.destroy()
      })
      incoming.on('error', () => {})
    })
    outgoing.on('error', reject)
    outgoing.on('close', () => {
      clearTimeout(deadline)
      // Also where the other side changes the protocol or says nothing at all; after an answer this changes nothing.
      reject(new SmsNotTaken('ECONNRESET'))
    })
    outgoing.end(body)
  })
}

function fileGateway(dataDir: string, now: () => Date): SmsGateway {
  const folder = join(dataDir, 'outbox')
  return {
    async send({ to, text }) {
      await mkdir(folder, { recursive: true })
      const line = `${JSON.stringify({ at: now().toISOString(), to, text })}\n`
      await appendFile(join(folder, 'sms.ndjson'), line, { mode: 0o600 })
    },
  }
}
