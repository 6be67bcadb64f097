import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { makeBom } from '../../scripts/security/sbom.ts'
import { audit, examineLockfile, readAudit, type Lockfile } from '../../scripts/security/supply-chain.ts'

const ROOT = join(import.meta.dirname, '../..')
const ADVISORIES = '/-/npm/v1/security/advisories/bulk'
const FINDING = {
  id: 1,
  url: 'https://advisories.example/1',
  title: 'It does what it should not',
  severity: 'high',
  vulnerable_versions: '<2.0.0',
  cwe: [],
  cvss: { score: 8.1, vectorString: null },
}

let folder: string
let server: Server | undefined

/** A project with one production package, which a tool needs as well. */
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'lis-audit-'))
  const root = {
    name: 'project',
    version: '1.0.0',
    dependencies: { part: '1.0.0' },
    devDependencies: { tool: '1.0.0' },
  }
  const part = { version: '1.0.0', integrity: `sha512-${Buffer.alloc(64).toString('base64')}` }
  const tool = { ...part, dev: true, dependencies: { part: '1.0.0' } }
  writeFileSync(join(folder, 'package.json'), JSON.stringify(root))
  writeFileSync(
    join(folder, 'package-lock.json'),
    JSON.stringify({
      ...root,
      lockfileVersion: 3,
      requires: true,
      packages: { '': root, 'node_modules/part': part, 'node_modules/tool': tool },
    }),
  )
})
afterEach(() => {
  server?.close()
  server?.closeAllConnections()
  server = undefined
  rmSync(folder, { recursive: true, force: true })
})

/** @param answer what the audit service says; the rest of the registry knows the packages */
async function askRegistry(answer: { status: number; body?: unknown }) {
  const packument = (name: string) => ({ name, 'dist-tags': { latest: '1.0.0' }, versions: { '1.0.0': { name, version: '1.0.0' } } }) // prettier-ignore
  server = createServer((request, response) => {
    request.resume()
    const { status, body } =
      request.url === ADVISORIES ? answer : { status: 200, body: packument(request.url!.slice(1)) }
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body) ?? '')
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  return ask(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`)
}

const ask = (registry: string) =>
  audit({ PATH: process.env.PATH, HOME: folder, npm_config_registry: registry, npm_config_cache: join(folder, 'cache') }, folder) // prettier-ignore

describe('the audit', () => {
  test('of a registry that knows nothing bad is clean', async () => {
    expect(await askRegistry({ status: 200, body: {} })).toMatchObject({ answered: true, counts: { high: 0 } })
  })

  test('tells of a finding in what production needs, and of none in a tool', async () => {
    const inPart = await askRegistry({ status: 200, body: { part: [FINDING] } })
    expect(inPart).toMatchObject({ answered: true, counts: { high: 1, critical: 0 } })
    server!.close()
    const inTool = await askRegistry({ status: 200, body: { tool: [FINDING] } })
    expect(inTool).toMatchObject({ answered: true, counts: { high: 0, critical: 0 } })
  })

  test.each([405, 503])('that the registry answers with %i was not asked, which is no finding', async (status) => {
    expect(await askRegistry({ status })).toEqual({
      answered: false,
      why: expect.stringContaining(String(status)),
    })
  })

  test('of a registry that nobody can reach was not asked', async () => {
    expect(await ask('http://127.0.0.1:9/')).toEqual({ answered: false, why: expect.stringContaining('ECONNREFUSED') })
  })

  test('is what npm says in JSON, and nothing else', () => {
    expect(readAudit('')).toBeUndefined()
    expect(readAudit('{}')).toEqual({ answered: false, why: 'its answer is no report' })
  })
})

describe('the lockfile', () => {
  const real = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as Lockfile
  const withPart = (fields: object) => ({
    packages: { 'node_modules/a/node_modules/part': { version: '1.0.0', license: 'MIT', integrity: 'x', ...fields } },
  })

  test('is as it must be, so that an installation without scripts is a whole one', () => {
    expect(examineLockfile(real).faults).toEqual([])
  })

  test.each([
    ['no hash', { integrity: undefined }, 'part 1.0.0 has no hash in the lockfile'],
    ['no hash, for development', { integrity: undefined, dev: true }, 'part 1.0.0 has no hash in the lockfile'],
    ['a script', { hasInstallScript: true }, 'part 1.0.0 runs a script when it is installed'],
    ['another licence', { license: 'AGPL-3.0' }, 'part 1.0.0 has the licence AGPL-3.0'],
    ['no licence', { license: undefined }, 'part 1.0.0 has the licence unknown'],
  ])('with a package that has %s is at fault', (_, fields, fault) => {
    expect(examineLockfile(withPart(fields)).faults).toEqual([fault])
  })

  test('with more packages than are agreed on is at fault', () => {
    expect(examineLockfile(withPart({}), 1).faults).toEqual([])
    expect(examineLockfile(withPart({}), 0).faults).toEqual(['1 production packages, more than 0'])
  })
})

test('the bill of materials has every production package, with its hash and its address, and no tool', async () => {
  const real = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as Lockfile
  const bom = await makeBom()
  expect(bom).toMatchObject({
    bomFormat: 'CycloneDX',
    metadata: { component: { name: 'laboratory-integration-service' } },
  })
  const refs = bom.components.map((component) => component['bom-ref'].split('|')[0]).sort()
  expect(refs).toEqual(
    examineLockfile(real)
      .parts.map(({ name, version }) => `${name}@${version}`)
      .sort(),
  )
  for (const component of bom.components)
    expect(component).toMatchObject({ purl: expect.stringMatching(/^pkg:npm\//), hashes: [{ alg: 'SHA-512' }] })
})
