/** Every certificate that an endpoint must not show: nothing of HTTP is sent to it, and the reason is named. */
import { once } from 'node:events'
import { webcrypto } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import type { AddressInfo, Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createServer } from 'node:tls'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createWebhookClient, type WebhookClient } from '../../daemon/webhook-client.ts'
import { loadX509 } from '../../scripts/dev-tls.ts'
import { createAddressPolicy } from '../../src/webhooks/endpoint-address.ts'

const DAY_MS = 86_400_000
const EC = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' }
const RSA = { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256', publicExponent: new Uint8Array([1, 0, 1]), modulusLength: 2048 } // prettier-ignore

type X509 = Awaited<ReturnType<typeof loadX509>>

interface Issued {
  pem: string
  subject: string
  keys: webcrypto.CryptoKeyPair
}

interface Wish {
  issuer?: Issued
  algorithm?: webcrypto.EcKeyGenParams | webcrypto.RsaHashedKeyGenParams
  /** Of the issuer's signature. */
  hash?: string
  fromDays?: number
  untilDays?: number
  isAuthority?: boolean
  name?: string
  forClients?: boolean
}

let x509: X509
let folder: string
let client: WebhookClient
let authority: Issued
let serial = 1

beforeAll(async () => {
  x509 = await loadX509()
  folder = mkdtempSync(join(tmpdir(), 'lis-certificates-'))
  authority = await issue({ isAuthority: true })
  const caFile = join(folder, 'ca.pem')
  writeFileSync(caFile, authority.pem)
  client = createWebhookClient({ policy: createAddressPolicy({ allow: ['127.0.0.0/8'] }), caFiles: [caFile] }, 5000)
})
afterAll(async () => {
  await client.close()
  rmSync(folder, { recursive: true, force: true })
})

/** Signed by itself where no issuer is wished for. */
async function issue(wish: Wish): Promise<Issued> {
  const { issuer, algorithm = EC, fromDays = -1, untilDays = 10, isAuthority = false, name = '127.0.0.1' } = wish
  const keys = (await webcrypto.subtle.generateKey(algorithm, true, ['sign', 'verify'])) as webcrypto.CryptoKeyPair
  const subject = `CN=${isAuthority ? 'authority' : 'endpoint'} ${serial}`
  const signer = issuer?.keys ?? keys
  const { ExtendedKeyUsage: usage } = x509
  const certificate = await x509.X509CertificateGenerator.create({
    subject,
    issuer: issuer?.subject ?? subject,
    serialNumber: (0x4000 + serial++).toString(16),
    notBefore: new Date(Date.now() + fromDays * DAY_MS),
    notAfter: new Date(Date.now() + untilDays * DAY_MS),
    signingAlgorithm: { name: signer.privateKey.algorithm.name, hash: wish.hash ?? 'SHA-256' },
    signingKey: signer.privateKey,
    publicKey: keys.publicKey,
    extensions: [
      new x509.BasicConstraintsExtension(isAuthority, undefined, true),
      ...(isAuthority
        ? [new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign, true)]
        : [
            new x509.ExtendedKeyUsageExtension([wish.forClients ? usage.clientAuth : usage.serverAuth]),
            new x509.SubjectAlternativeNameExtension([{ type: name === '127.0.0.1' ? 'ip' : 'dns', value: name }]),
          ]),
    ],
  })
  return { pem: `${certificate.toString('pem')}\n`, subject, keys }
}

/** What an attempt comes to at an endpoint that shows these certificates, its own first, and how much of HTTP it got. */
async function attempt(chain: Issued[]): Promise<{ outcome: object; heardBytes: number }> {
  const key = x509.PemConverter.encode(await webcrypto.subtle.exportKey('pkcs8', chain[0]!.keys.privateKey), 'PRIVATE KEY') // prettier-ignore
  let heardBytes = 0
  // Without a minimum of its own: it is ours that must refuse.
  const server = createServer({ cert: chain.map(({ pem }) => pem).join(''), key, ciphers: 'DEFAULT@SECLEVEL=0' })
  server.on('tlsClientError', () => {})
  server.on('secureConnection', (socket: Socket) => {
    socket.on('error', () => {})
    socket.on('data', (data) => {
      heardBytes += data.length
      socket.end('HTTP/1.1 204 No Content\r\n\r\n')
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const outcome = await client.post({
    accountId: 'any',
    endpoint: `https://127.0.0.1:${port}/`,
    headers: {},
    body: Buffer.from('{}'),
  })
  server.close()
  return { outcome, heardBytes }
}

const chains: Record<string, [code: RegExp, chain: () => Promise<Issued[]>]> = {
  'has expired': [/CERT_HAS_EXPIRED/, async () => [await issue({ issuer: authority, fromDays: -9, untilDays: -1 })]],
  'is not valid yet': [/CERT_NOT_YET_VALID/, async () => [await issue({ issuer: authority, fromDays: 1 })]],
  'is for another name': [
    /ERR_TLS_CERT_ALTNAME_INVALID/,
    async () => [await issue({ issuer: authority, name: 'partner.example.com' })],
  ],
  'is signed by itself': [/DEPTH_ZERO_SELF_SIGNED_CERT/, async () => [await issue({})]],
  'is of an unknown authority': [
    /UNABLE_TO_VERIFY_LEAF_SIGNATURE/,
    async () => [await issue({ issuer: await issue({ isAuthority: true }) })],
  ],
  'brings an unknown authority along': [
    /SELF_SIGNED_CERT_IN_CHAIN/,
    async () => {
      const unknown = await issue({ isAuthority: true })
      return [await issue({ issuer: unknown }), unknown]
    },
  ],
  'comes without the one between': [
    /UNABLE_TO_VERIFY_LEAF_SIGNATURE/,
    async () => [await issue({ issuer: await issue({ issuer: authority, isAuthority: true }) })],
  ],
  'comes with one between that has expired': [
    /CERT_HAS_EXPIRED/,
    async () => {
      const between = await issue({ issuer: authority, isAuthority: true, fromDays: -9, untilDays: -1 })
      return [await issue({ issuer: between }), between]
    },
  ],
  'is signed by one that is no authority': [
    /INVALID_PURPOSE|INVALID_CA/,
    async () => {
      const endpoint = await issue({ issuer: authority })
      return [await issue({ issuer: endpoint }), endpoint]
    },
  ],
  'is for clients alone': [/INVALID_PURPOSE/, async () => [await issue({ issuer: authority, forClients: true })]],
  'is signed with SHA-1': [/CA_MD_TOO_WEAK/, async () => [await issue({ issuer: authority, hash: 'SHA-1' })]],
  'has a key of 1,024 bits': [
    /EE_KEY_TOO_SMALL/,
    async () => [await issue({ issuer: authority, algorithm: { ...RSA, modulusLength: 1024 } })],
  ],
}

test.each(Object.entries(chains))('a certificate that %s gets nothing of HTTP', async (_, [code, chain]) => {
  const { outcome, heardBytes } = await attempt(await chain())
  expect(outcome).toMatchObject({ ok: false, class: 'tls', status: null, error: expect.stringMatching(code) })
  expect(heardBytes).toBe(0)
})

test('one that its chain proves is taken', async () => {
  const between = await issue({ issuer: authority, isAuthority: true })
  for (const chain of [[await issue({ issuer: authority })], [await issue({ issuer: between }), between]]) {
    const { outcome, heardBytes } = await attempt(chain)
    expect(outcome).toMatchObject({ ok: true, status: 204 })
    expect(heardBytes).toBeGreaterThan(0)
  }
})
