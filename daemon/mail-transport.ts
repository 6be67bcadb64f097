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

/** For a connection and a server's first word. */
const SMTP_GREETING_MS = 20_000
/**
 * A server that scans what it gets may be silent for ten minutes behind it (RFC 5321 4.5.3.2.6). Given up sooner, it has taken the mail and
 * gets it once more (RFC 1047).
 */
const SMTP_SILENCE_MS = 600_000
/** For one that always says just enough not to be silent. */
const SMTP_DEADLINE_MS = 660_000

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
    { url, connectionTimeout: SMTP_GREETING_MS, greetingTimeout: SMTP_GREETING_MS, socketTimeout: SMTP_SILENCE_MS },
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
