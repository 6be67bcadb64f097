/** An integrator's calls as the crash runs make them, without a retry: what breaks is seen as broken. */
import { Agent, request, type ClientRequest, type IncomingHttpHeaders } from 'node:http'
import type { Tenant } from './crash-arena.ts'

export interface Answer {
  /** null: the connection broke, or no answer came in time. */
  status: number | null
  headers: IncomingHttpHeaders
  body: Record<string, any>
}

/** Above what the service takes at most to say that it can't answer. */
const TIMEOUT_MS = 12_000

export function newAgent(): Agent {
  return new Agent({ keepAlive: true, maxSockets: 64 })
}

/**
 * @param agent undefined: over a connection of its own
 * @param caller without a token: no `Authorization` is sent
 */
export function call(
  agent: Agent | undefined,
  method: string,
  url: string,
  { token }: { token?: string },
  body?: object,
  headers: Record<string, string> = {},
): Promise<Answer> {
  const payload = body === undefined ? '' : JSON.stringify(body)
  const outgoing = request(url, {
    agent: agent ?? false,
    method,
    headers: {
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      ...(body === undefined
        ? {}
        : { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(payload)) }),
      ...headers,
    },
  })
  const answer = answerOf(outgoing)
  outgoing.end(payload)
  return answer
}

/** Never throws. */
export function answerOf(outgoing: ClientRequest): Promise<Answer> {
  return new Promise((resolve) => {
    const broken = () => resolve({ status: null, headers: {}, body: {} })
    outgoing.setTimeout(TIMEOUT_MS, () => outgoing.destroy())
    outgoing.on('error', broken)
    outgoing.on('response', (incoming) => {
      let text = ''
      incoming.setEncoding('utf8')
      incoming.on('data', (chunk: string) => (text += chunk))
      incoming.on('error', broken)
      incoming.on('end', () =>
        incoming.complete
          ? resolve({ status: incoming.statusCode!, headers: incoming.headers, body: text ? JSON.parse(text) : {} })
          : broken(),
      )
    })
  })
}

let contacts = 1_000_000_000

/** A contact that was not in today. */
export function leadBody({ lab }: Tenant, integratorID: string): Record<string, string> {
  return { branchID: lab, integratorID, first_name: 'Asha', contact: String(++contacts) }
}
