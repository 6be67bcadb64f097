/** An SMTP server that takes every mail and remembers its Message-ID. */
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { SMTPServer } from 'smtp-server'

export interface MailSink {
  url: string
  /** In the order in which they were taken. */
  taken: { messageId: string; subject: string }[]
  /** Called when a mail is whole and not taken yet. */
  onMail: (() => void) | undefined
  close(): Promise<void>
}

export async function startMailSink(): Promise<MailSink> {
  const taken: MailSink['taken'] = []
  const sink: MailSink = { url: '', taken, onMail: undefined, close: async () => {} }
  const server = new SMTPServer({
    disabledCommands: ['AUTH', 'STARTTLS'],
    onData(stream, _session, callback) {
      let raw = ''
      stream.on('data', (chunk: Buffer) => (raw += chunk.toString('latin1')))
      stream.on('end', () => {
        sink.onMail?.()
        const field = (name: string) => new RegExp(`^${name}:\\s*(.*)$`, 'im').exec(raw)?.[1]?.trim() ?? ''
        taken.push({ messageId: field('message-id'), subject: field('subject') })
        callback()
      })
    },
  })
  server.on('error', () => {})
  server.listen(0, '127.0.0.1')
  await once(server.server, 'listening')
  sink.url = `smtp://127.0.0.1:${(server.server.address() as AddressInfo).port}`
  sink.close = () => new Promise((resolve) => server.close(() => resolve()))
  return sink
}
