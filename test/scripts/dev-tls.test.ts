import { createServer, get } from 'node:https'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { X509Certificate } from 'node:crypto'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { makeSureOfDevTls } from '../../scripts/dev-tls.ts'

const NOW_MS = Date.UTC(2026, 10, 20)
const YEAR_MS = 365 * 86_400_000

let folder: string

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'lis-dev-tls-'))
})

afterEach(() => rmSync(folder, { recursive: true, force: true }))

const contents = () =>
  readdirSync(join(folder, 'dev-tls')).map((name) => readFileSync(join(folder, 'dev-tls', name), 'utf8'))

test('a server with the certificate is trusted by those who know the CA, under every name of this machine, and by nobody else', async () => {
  const tls = await makeSureOfDevTls(folder, Date.now())
  const server = createServer(
    { key: readFileSync(tls.keyFile), cert: readFileSync(tls.certificateFile) },
    (_request, response) => response.end('ok'),
  ).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const ask = (servername: string, ca: string | undefined) =>
    new Promise<unknown>((resolve) => {
      get({ host: '127.0.0.1', port, servername, ca, agent: false }, (response) => resolve(response.statusCode)).on(
        'error',
        (error: NodeJS.ErrnoException) => resolve(error.code),
      )
    })
  const ca = readFileSync(tls.caFile, 'utf8')
  expect(await ask('localhost', ca)).toBe(200)
  expect(await ask('', ca)).toBe(200)
  expect(await ask('localhost', undefined)).toBe('UNABLE_TO_VERIFY_LEAF_SIGNATURE')
  server.close()
  expect(new X509Certificate(readFileSync(tls.certificateFile)).subjectAltName).toBe(
    'DNS:localhost, IP Address:127.0.0.1, IP Address:0:0:0:0:0:0:0:1',
  )
})

test("the files are made once, for ten years, and the key is its owner's", async () => {
  const tls = await makeSureOfDevTls(folder, NOW_MS)
  const made = contents()
  const { validToDate } = new X509Certificate(readFileSync(tls.certificateFile))
  expect(validToDate.getTime()).toBeGreaterThan(NOW_MS + 9.9 * YEAR_MS)
  expect(statSync(tls.keyFile).mode & 0o077).toBe(0)
  await makeSureOfDevTls(folder, NOW_MS + YEAR_MS)
  expect(contents()).toEqual(made)
})

test('a broken file, or a certificate about to expire, is replaced as a whole', async () => {
  const tls = await makeSureOfDevTls(folder, NOW_MS)
  const made = contents()
  writeFileSync(tls.caFile, 'not a certificate')
  await makeSureOfDevTls(folder, NOW_MS)
  const remade = contents()
  for (const text of remade) expect(made).not.toContain(text)
  await makeSureOfDevTls(folder, NOW_MS + 10 * YEAR_MS)
  for (const text of contents()) expect(remade).not.toContain(text)
  // Under a clock that was set back since it is not good yet.
  const later = contents()
  await makeSureOfDevTls(folder, NOW_MS + YEAR_MS)
  for (const text of contents()) expect(later).not.toContain(text)
})

test('several that make them at once end with one whole set and no leftovers', async () => {
  await Promise.all([1, 2, 3].map(() => makeSureOfDevTls(folder, NOW_MS)))
  expect(readdirSync(folder)).toEqual(['dev-tls'])
  const made = contents()
  await makeSureOfDevTls(folder, NOW_MS)
  expect(contents()).toEqual(made)
})
