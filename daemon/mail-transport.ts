/**
 * Hands a mail over: to SMTP_URL, or, where none is set (development), to a file under the data folder.
 */
import type { Transporter } from 'nodemailer'
import { appendToOutbox } from '../src/gateway-request.ts'

export interface OutgoingMail {
  messageId: string
  recipient: string
  subject: string
  text: string
  html: string
}

export interface MailTransport {
  /** Resolves when the other side has taken it. @throws when it has not */
  send(mail: OutgoingMail): Promise<void>
  close(): void
}

/** A server that hangs must not hold up the mails behind it for long. */
const SMTP_TIMEOUT_MS = 20_000
/** Nor one that always says just enough not to be silent. */
const SMTP_DEADLINE_MS = 60_000

export interface MailTransportOptions {
  smtpUrl: string | undefined
  from: string
  dataDir: string
  now: () => Date
  /** For one try, in milliseconds. */
  smtpDeadlineMs?: number
}

export function createMailTransport(options: MailTransportOptions): MailTransport {
  const { smtpUrl, from, smtpDeadlineMs = SMTP_DEADLINE_MS } = options
  return smtpUrl ? smtpTransport(smtpUrl, from, smtpDeadlineMs) : fileTransport(options)
}

function smtpTransport(url: string, from: string, deadlineMs: number): MailTransport {
  const transport = createSmtp(url, from)
  return {
    async send({ messageId, recipient, subject, text, html }) {
      const smtp = await transport
      await smtp.sendMail({
        messageId,
        // As an object: an address is never read as a list of them.
        to: { name: '', address: recipient },
        subject,
        text,
        html,
        signal: AbortSignal.timeout(deadlineMs),
      })
    },
    close: () => void transport.then((smtp) => smtp.close()),
  }
}

/** Loaded where mails are sent by SMTP alone: it takes some memory, and a part of the start. */
async function createSmtp(url: string, from: string): Promise<Transporter> {
  const { createTransport } = await import('nodemailer')
  return createTransport(
    { url, connectionTimeout: SMTP_TIMEOUT_MS, greetingTimeout: SMTP_TIMEOUT_MS, socketTimeout: SMTP_TIMEOUT_MS },
    { from, disableFileAccess: true, disableUrlAccess: true },
  )
}

function fileTransport({ from, dataDir, now }: MailTransportOptions): MailTransport {
  return {
    send({ messageId, recipient, subject, text }) {
      const headers = { from, 'message-id': messageId }
      return appendToOutbox(dataDir, 'mails.ndjson', { at: now().toISOString(), to: recipient, subject, text, headers })
    },
    close: () => {},
  }
}
