/**
 * The sample events of the mock: the examples of the contract's `callbacks`, signed as the daemon signs.
 */
import { readFileSync } from 'node:fs'
import { rootCertificates } from 'node:tls'
import { Agent, request } from 'undici'
import { processClock } from '../src/clock.ts'
import { sign } from '../src/deliveries/signature.ts'
import type { Subscription } from './mock-front.ts'

interface EventOperation {
  requestBody: { content: { 'application/json': { examples: Record<string, { value: { id: string } }> } } }
}

/** What is needed of the contract here: an event's `callbacks` entry refers to its `webhooks` entry, by its name. */
export interface ContractDocument {
  paths: { '/client/events/subscribe': { post: { callbacks: Record<string, unknown> } } } & {
    [path: string]: { [method: string]: { operationId?: string } }
  }
  webhooks: Record<string, { post: EventOperation }>
}

/** The same as the daemon's. */
const DEADLINE_MS = 10_000

/**
 * Sends one sample of each event of the subscription, once; never throws: an endpoint's fault is a line.
 * @param caFiles PEM files with authorities to trust besides the public ones
 */
export async function sendSampleEvents(
  contract: ContractDocument,
  { endpoint, events, secret }: Subscription,
  caFiles: string[],
  say: (line: string) => void,
): Promise<void> {
  const known = contract.paths['/client/events/subscribe'].post.callbacks
  const key = Buffer.from(secret.replace(/^whsec_/, ''), 'base64')
  let agent: Agent | undefined
  try {
    agent = new Agent({ connect: { ca: [...rootCertificates, ...caFiles.map((file) => readFileSync(file, 'utf8'))] } })
    for (const event of new Set(events)) {
      if (!(event in known)) continue
      const [sample] = Object.values(contract.webhooks[event]!.post.requestBody.content['application/json'].examples)
      await sendOne(agent, endpoint, event, sample!.value, key, say)
    }
  } catch (error) {
    say(`the sample events can't be sent: ${(error as Error).message}`)
  } finally {
    await agent?.close()
  }
}

async function sendOne(
  agent: Agent,
  endpoint: string,
  event: string,
  sample: { id: string },
  key: Buffer,
  say: (line: string) => void,
): Promise<void> {
  const body = Buffer.from(JSON.stringify(sample))
  const timestamp = Math.floor(processClock.nowMs() / 1000)
  try {
    const { statusCode, body: answer } = await request(endpoint, {
      dispatcher: agent,
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        'user-agent': 'LaboratoryIntegrationService/mock',
        'webhook-id': sample.id,
        'webhook-timestamp': String(timestamp),
        'webhook-signature': sign([key], sample.id, timestamp, body),
      },
      body,
      signal: AbortSignal.timeout(DEADLINE_MS),
    })
    await answer.dump()
    say(`${event} -> ${endpoint}: ${statusCode}`)
  } catch (error) {
    const { message, code } = error as NodeJS.ErrnoException
    say(`${event} -> ${endpoint}: ${message || code}`)
  }
}
