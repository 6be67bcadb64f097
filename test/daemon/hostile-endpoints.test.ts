/**
 * Every faulty endpoint and name server of `make bench-hostile`, once each and all at once, called by the real client with a
 * shorter deadline.
 */
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect } from 'node:tls'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createWebhookClient, type WebhookClient } from '../../daemon/webhook-client.ts'
import {
  HOSTILE_NAMES,
  hostileName,
  KINDS,
  startHostileEndpoint,
  type HostileEndpoint,
} from '../../scripts/bench/hostile-endpoints.ts'
import { makeSureOfDevTls, type DevTls } from '../../scripts/dev-tls.ts'
import { startNameServer, type NameServer } from '../../scripts/security/name-server.ts'
import { createAddressPolicy } from '../../src/webhooks/endpoint-address.ts'

/** A name that is known after 3 s may still be reached, also on a machine that does other things. */
const DEADLINE_MS = 6000
const LATE_MS = 1000
/** Two seconds of body, or an idle connection's eight. */
const GONE_WITHIN_MS = 12_000

let folder: string
let tls: DevTls
let nameServer: NameServer
let client: WebhookClient
let endpoints: HostileEndpoint[]

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'lis-hostile-'))
  tls = await makeSureOfDevTls(folder, Date.now(), [HOSTILE_NAMES])
  nameServer = await startNameServer(hostileName)
  const policy = createAddressPolicy({ allow: ['127.0.0.0/8'] })
  client = createWebhookClient({ policy, caFiles: [tls.caFile], dnsServers: [nameServer.address] }, DEADLINE_MS)
  endpoints = await Promise.all(Object.keys(KINDS).map((kind) => startHostileEndpoint(kind, tls)))
})
afterAll(async () => {
  await client.close()
  for (const endpoint of endpoints) endpoint.close()
  nameServer.close()
  rmSync(folder, { recursive: true, force: true })
})

test('whatever an endpoint or its name server does, an attempt is judged in time and rightly, and nothing stays open', async () => {
  const body = Buffer.from('{"a":1}')
  const outcomes = await Promise.all(
    endpoints.map(({ url }) => client.post({ accountId: 'any', endpoint: url, headers: {}, body })),
  )
  const seen = endpoints.map(({ kind }, n) => [kind, outcomes[n]!.class])
  const expected = endpoints.map(({ kind }, n) => {
    const { classes } = KINDS[kind]!
    return [kind, classes.includes(outcomes[n]!.class) ? outcomes[n]!.class : classes.join(' or ')]
  })
  expect(seen).toEqual(expected)
  const late = endpoints.filter((_, n) => outcomes[n]!.durationMs > DEADLINE_MS + LATE_MS)
  expect(late.map(({ kind }) => kind)).toEqual([])
  const open = () => endpoints.filter((endpoint) => endpoint.open > 0).map(({ kind }) => kind)
  await expect.poll(open, { timeout: GONE_WITHIN_MS, interval: 100 }).toEqual([])
}, 60_000)

test.each([
  ['reset in the body', 'ECONNRESET'],
  ['end in the body', 'an end'],
] as const)('the endpoint of the %s sends that: %s', async (kind, expected) => {
  const { port } = new URL(endpoints.find((endpoint) => endpoint.kind === kind)!.url)
  const socket = connect({ host: '127.0.0.1', port: Number(port), rejectUnauthorized: false })
  let heard = ''
  socket.on('data', (data) => (heard += data))
  const over = new Promise<string>((resolve) => {
    socket.once('error', (error: NodeJS.ErrnoException) => resolve(error.code!))
    socket.once('end', () => resolve('an end'))
  })
  await once(socket, 'secureConnect')
  socket.write('POST / HTTP/1.1\r\nhost: any\r\ncontent-length: 0\r\n\r\n')
  expect(await over).toBe(expected)
  expect(heard).toContain('hello')
  socket.destroy()
})
