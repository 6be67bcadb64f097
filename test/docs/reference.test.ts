import { cpSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parse } from 'yaml'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { buildReference } from '../../scripts/docs-build.ts'
import { referenceDirOf, referencePageOf, type ContractName } from '../../src/reference-pages.ts'
import { startTestApp, type TestApp } from '../support/app.ts'

const OPENAPI = join(import.meta.dirname, '..', '..', 'openapi')

let dataDir: string
let app: TestApp
let split: TestApp

beforeAll(async () => {
  dataDir = mkdtempSync(join(tmpdir(), 'lis-docs-'))
  await buildReference(dataDir)
  app = await startTestApp()
  split = await startTestApp({ serves: { client: true, operator: false } })
})
afterAll(async () => {
  await app.close()
  await split.close()
  rmSync(dataDir, { recursive: true, force: true })
})

const pageOf = (contract: ContractName) => readFileSync(referencePageOf(referenceDirOf(dataDir), contract), 'utf8')
const get = (of: TestApp, path: string, options: RequestInit = {}) =>
  fetch(`http://127.0.0.1:${of.port}${path}`, options)

/** What the page renders, as its own script reads it. */
function definitionIn(page: string): any {
  const [, definition] = /const __redoc_definition = (\{.*\});?\n/.exec(page) ?? []
  return JSON.parse(definition!)
}

describe('the rendered reference', () => {
  test.each(['client', 'operator'] as const)('of the %s contract holds every operation, event and example', (name) => {
    const contract = parse(readFileSync(join(OPENAPI, `${name}.yaml`), 'utf8'))
    const shown = definitionIn(pageOf(name))
    expect(Object.keys(shown.paths)).toEqual(Object.keys(contract.paths))
    expect(Object.keys(shown.webhooks ?? {})).toEqual(Object.keys(contract.webhooks ?? {}))
    expect(shown.components.examples).toEqual(contract.components.examples)
    for (const [event, { post }] of Object.entries<any>(shown.webhooks ?? {})) {
      const { examples, example } = post.requestBody.content['application/json']
      expect([event, examples ?? example]).not.toEqual([event, undefined])
    }
  })

  test.each(['client', 'operator'] as const)('of the %s contract loads nothing from elsewhere', (name) => {
    const page = pageOf(name)
    const tags = page.match(/<(script|link|img|iframe|object|embed)\b[^>]*>/g) ?? []
    expect(tags.length).toBeGreaterThan(0)
    expect(tags.filter((tag) => /\b(src|href|data)=/.test(tag))).toEqual([])
    expect(page).not.toMatch(/\bimport\s*(\{[^}]*\}\s*from\s*)?["']https?:/)
  })

  test('is built again only when its contract or the tool is another one', async () => {
    expect(await buildReference(dataDir)).toEqual([])
    const page = referencePageOf(referenceDirOf(dataDir), 'operator')
    writeFileSync(`${page}.made-of`, 'an older contract')
    writeFileSync(page, 'an older page')
    expect(await buildReference(dataDir)).toEqual([page])
    expect(statSync(page).size).toBeGreaterThan(100_000)
  })
})

describe('GET /docs', () => {
  test('lists the pages that this listener serves', async () => {
    expect(await (await get(app, '/docs')).text()).toMatch(
      /For integrators: not built yet, run <code>make docs<\/code>/,
    )
    const built = referenceDirOf(app.dataDir)
    for (const one of [built, referenceDirOf(split.dataDir)]) cpSync(referenceDirOf(dataDir), one, { recursive: true })
    const both = await (await get(app, '/docs')).text()
    expect(both).toContain('href="/docs/client"')
    expect(both).toContain('href="/docs/operator"')
    const one = await (await get(split, '/docs')).text()
    expect(one).not.toContain('/docs/operator')
    expect((await get(split, '/docs/operator')).status).toBe(404)
    rmSync(built, { recursive: true })
  })

  test('says how to build a page that is not there', async () => {
    const answer = await get(app, '/docs/client')
    expect(answer.status).toBe(404)
    expect(((await answer.json()) as any).error.details).toBe('the reference is not built yet: run `make docs`')
  })

  test('serves a page that may ask nobody for anything, and not again what the browser has', async () => {
    const referenceDir = referenceDirOf(split.dataDir)
    cpSync(referenceDirOf(dataDir), referenceDir, { recursive: true })
    const answer = await get(split, '/docs/client')
    expect(answer.status).toBe(200)
    expect(answer.headers.get('content-type')).toBe('text/html; charset=utf-8')
    expect(answer.headers.get('content-security-policy')).toMatch(/^default-src 'none'; /)
    expect(answer.headers.get('content-security-policy')).not.toMatch(/connect-src|https?:|\*/)
    expect(await answer.text()).toBe(readFileSync(referencePageOf(referenceDir, 'client'), 'utf8'))
    const etag = answer.headers.get('etag')!
    // The second is what a proxy that compresses makes of it.
    for (const known of [etag, `"other", W/${etag}`]) {
      expect((await get(split, '/docs/client', { headers: { 'if-none-match': known } })).status).toBe(304)
    }
    expect((await get(split, '/docs/client', { method: 'HEAD' })).headers.get('content-length')).toBe(
      answer.headers.get('content-length'),
    )
    expect((await get(split, '/docs/client', { method: 'POST' })).status).toBe(405)
  })
})
