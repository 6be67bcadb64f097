/**
 * The lab's own message gateway: a real HTTP server that answers what the test says.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect } from 'vitest'

export interface GatewayCall {
  /** The Idempotency-Key. */
  key: string
  body: Record<string, unknown>
  /** What it was answered. */
  status: number
}

export class TestGateway {
  readonly calls: GatewayCall[] = []
  /** The status of the next answer. */
  answer: (call: Omit<GatewayCall, 'status'>) => number | Promise<number> = () => 200
  /** The most calls that were open at a time. */
  mostOpen = 0
  #open = 0
  readonly #server = createServer((req, res) => void this.#serve(req, res))

  async start(): Promise<this> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve))
    return this
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/messages`
  }

  /** Keys of the messages that it has taken, in the order in which it did. */
  get taken(): string[] {
    return this.calls.filter(({ status }) => status < 300).map(({ key }) => key)
  }

  /** Waits until it has taken so many. */
  async took(count: number, timeout = 20_000): Promise<string[]> {
    await expect.poll(() => this.taken.length, { timeout, interval: 10 }).toBeGreaterThanOrEqual(count)
    return this.taken
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections()
    await new Promise((resolve) => this.#server.close(resolve))
  }

  async #serve(req: IncomingMessage, res: ServerResponse): Promise<void> {
    this.#open += 1
    this.mostOpen = Math.max(this.mostOpen, this.#open)
    res.on('close', () => (this.#open -= 1))
    const chunks: Buffer[] = []
    for await (const chunk of req) chunks.push(chunk as Buffer)
    const call = {
      key: String(req.headers['idempotency-key']),
      body: JSON.parse(Buffer.concat(chunks).toString('utf8')) as Record<string, unknown>,
    }
    const status = await this.answer(call)
    this.calls.push({ ...call, status })
    res.writeHead(status).end('{}')
  }
}
