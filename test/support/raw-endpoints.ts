/**
 * Endpoints that write the bytes that a test chooses, and a client that may call them.
 */
import type { Socket } from 'node:net'
import { createWebhookClient, type WebhookClient } from '../../daemon/webhook-client.ts'
import { createAddressPolicy } from '../../src/webhooks/endpoint-address.ts'
import { startRawServer, type RawServer } from './raw-server.ts'
import { createTestTls } from './tls.ts'

export const DEADLINE_MS = 5000
export const NO_CONTENT = 'HTTP/1.1 204 No Content\r\n\r\n'

export class RawEndpoints {
  tls!: Awaited<ReturnType<typeof createTestTls>>
  client!: WebhookClient
  #servers: RawServer[] = []

  async open(): Promise<void> {
    this.tls = await createTestTls()
    this.client = this.newClient()
  }

  async closeServers(): Promise<void> {
    for (const server of this.#servers.splice(0)) await server.close()
  }

  async close(): Promise<void> {
    await this.client.close()
    this.tls.remove()
  }

  newClient(): WebhookClient {
    return createWebhookClient(
      { policy: createAddressPolicy({ allow: ['127.0.0.0/8', '::1/128'] }), caFiles: [this.tls.caFile] },
      DEADLINE_MS,
    )
  }

  /** @param onRequest with the request's number on its connection and the connection's number, both from 1 */
  async server(
    onRequest: (socket: Socket, n: number, connection: number) => void,
    onConnection: (socket: Socket) => void = () => {},
  ): Promise<RawServer> {
    const numbers = new Map<Socket, number>()
    const started = await startRawServer(
      this.tls,
      (socket, n) => onRequest(socket, n, numbers.get(socket)!),
      (socket) => {
        numbers.set(socket, numbers.size + 1)
        onConnection(socket)
      },
    )
    this.#servers.push(started)
    return started
  }

  post({ port }: { port: number }, using = this.client, headers: Record<string, string> = { 'webhook-id': 'evt_1' }) {
    return using.post({
      accountId: 'any',
      endpoint: `https://127.0.0.1:${port}/hooks?a=%20b`,
      headers,
      body: Buffer.from('{"a":1}'),
    })
  }
}
