import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { SMTPServer } from 'smtp-server'

export interface ReceivedMail {
  from: string
  recipients: string[]
  /** As it came over the wire. */
  bytes: Buffer
  /** The same, unfolded. */
  raw: string
  messageId: string
}

export interface TestSmtpServer {
  url: string
  mails: ReceivedMail[]
  /** true: every mail is refused for now. */
  refusing: boolean
  /** Whose mail it says yes to only then. */
  hold: (recipient: string) => Promise<void> | undefined
  close(): Promise<void>
}

/** A real SMTP server on a free port. */
export async function startSmtpServer(): Promise<TestSmtpServer> {
  const mails: ReceivedMail[] = []
  const state = { refusing: false, hold: (_recipient: string): Promise<void> | undefined => undefined }
  const server = new SMTPServer({
    disabledCommands: ['AUTH', 'STARTTLS'],
    onData(stream, session, callback) {
      const chunks: Buffer[] = []
      stream.on('data', (chunk: Buffer) => chunks.push(chunk))
      stream.on('end', () => {
        if (state.refusing) return callback(Object.assign(new Error('try later'), { responseCode: 451 }))
        const bytes = Buffer.concat(chunks)
        const raw = bytes.toString('utf8').replace(/\r\n[ \t]+/g, ' ')
        mails.push({
          bytes,
          from: session.envelope.mailFrom ? session.envelope.mailFrom.address : '',
          recipients: session.envelope.rcptTo.map(({ address }) => address),
          raw,
          messageId: /^message-id: (.*)$/im.exec(raw)?.[1]?.trim() ?? '',
        })
        void Promise.resolve(state.hold(mails.at(-1)!.recipients[0]!)).then(() => callback())
      })
    },
  })
  server.on('error', () => {})
  server.listen(0, '127.0.0.1')
  await once(server.server, 'listening')
  return {
    url: `smtp://127.0.0.1:${(server.server.address() as AddressInfo).port}`,
    mails,
    get refusing() {
      return state.refusing
    },
    set refusing(value) {
      state.refusing = value
    },
    get hold() {
      return state.hold
    },
    set hold(value) {
      state.hold = value
    },
    close: () => new Promise((resolve) => server.close(() => resolve())),
  }
}
