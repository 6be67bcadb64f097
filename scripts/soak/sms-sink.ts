/** An SMS gateway that takes every message and remembers the code in it. */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface SmsSink {
  url: string
  /** undefined: none has come. */
  codeOf(contact: string): string | undefined
  /** Before another one is asked for. */
  forget(contact: string): void
  close(): void
}

export async function startSmsSink(): Promise<SmsSink> {
  const codes = new Map<string, string>()
  const server = createServer((request, response) => {
    let text = ''
    request.setEncoding('utf8')
    request.on('data', (chunk: string) => (text += chunk))
    request.on('end', () => {
      const sms = JSON.parse(text) as { to: string; text: string }
      codes.set(sms.to, /\b\d{6}\b/.exec(sms.text)![0])
      response.writeHead(204).end()
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/sms`,
    codeOf: (contact) => codes.get(contact),
    forget: (contact) => codes.delete(contact),
    close: () => {
      server.close()
      server.closeAllConnections()
    },
  }
}
