/**
 * The README's chapter "Every operation": each operation of the client contract has its line there, and every line works as it
 * stands.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { buildTenant, type Tenant } from './fuzz/fuzz-world.ts'
import { CLIENT_HINTS, type Prepared } from './fuzz/operation-hints.ts'
import { client, startTestApp, type TestApp } from './support/app.ts'
import { newContact } from './support/builders.ts'

interface Line {
  operationId: string
  /** As the shell reads it, its variables not filled in. */
  command: string
}

const readme = readFileSync(join(import.meta.dirname, '..', 'README.md'), 'utf8')
const chapter = readme.split('\n## Every operation\n')[1]!.split('\n## ')[0]!
const lines: Line[] = [...chapter.matchAll(/^# (\w+): .+\n(curl .+)$/gm)].map(([, operationId, command]) => ({
  operationId: operationId!,
  command: command!,
}))

let app: TestApp
let tenant: Tenant

beforeAll(async () => {
  app = await startTestApp({ serves: { client: true, operator: false } })
  tenant = await buildTenant(app, 'catch_all')
})
afterAll(() => app.close())

/** They have nothing to act on here; that they are found at all is told by the sentence. */
const REFUSED: Record<string, [status: number, details: RegExp]> = {
  redeliver: [409, /pending/],
  getMissedEvent: [404, /missed event/],
}

test('the chapter has every operation of the client contract, once and in no other place', () => {
  expect(lines.map(({ operationId }) => operationId).sort()).toEqual(
    client.operations.map(({ operationId }) => operationId).sort(),
  )
})

test.each(lines)('$operationId works as its line says', async ({ operationId, command }) => {
  const prepared = await CLIENT_HINTS[operationId]!(tenant, app)
  const { method, url, headers, body } = readCurl(command, variablesOf(prepared))
  const operation = client.operations.find((known) => known.operationId === operationId)!
  const pattern = new RegExp(`^${operation.path.replace(/\{[^}]+\}/g, '[^/?]+')}$`)
  const [path, search] = url.split('?')
  expect([method, path]).toEqual([operation.method, expect.stringMatching(pattern)])
  const answer = await app.call(method, path!, {
    headers,
    ...(search === undefined ? {} : { search: `?${search}` }),
    ...(body === undefined ? {} : { rawBody: body }),
  })
  const [status, details] = REFUSED[operationId] ?? [200, /^undefined$/]
  expect([answer.status, String(answer.body.error?.details)]).toEqual([status, expect.stringMatching(details)])
})

test('what the receiver is shown to print has the line of the signature, in its own words', () => {
  const source = readFileSync(join(import.meta.dirname, '..', 'scripts', 'receiver.ts'), 'utf8')
  const note = /return '(not checked [^']+)'/.exec(source)![1]
  expect(readme).toContain(`\nuser-agent: LaboratoryIntegrationService/0.1.0\nsignature: ${note}\n{\n`)
})

function variablesOf({ path = {}, query = {}, given = {} }: Prepared): Record<string, string | undefined> {
  const made = (name: string) => (given[name] ? String(fc.sample(given[name], { numRuns: 1 })[0]) : undefined)
  const { account, labs, tests, patientToken } = tenant
  return {
    BASE: '',
    JSON: 'Content-Type: application/json',
    AUTH: `Authorization: Bearer ${account.token}`,
    CLIENT_ID: account.clientId,
    CLIENT_SECRET: account.clientSecret,
    REFRESH_TOKEN: made('refreshToken'),
    LAB: query.labID ?? labs[0]!.id,
    TEST: tests[0]!.id,
    CONTACT: newContact(),
    OTP: made('otp'),
    OTP_TOKEN: made('otpToken'),
    PATIENT_TOKEN: patientToken,
    WEBHOOK: path.id ?? path._id ?? path.webhookId ?? query.webhookId ?? made('webhookId') ?? '',
    EVENT: path.eventId,
    RECOVERY: path.recoveryId,
    SINCE: made('since'),
    LEAD: made('leadId'),
  }
}

/** As far as a shell and curl have to be understood here. @throws for a variable that nobody told of */
function readCurl(command: string, variables: Record<string, string | undefined>) {
  const words = [...command.matchAll(/(?:'[^']*'|"[^"]*"|[^\s'"]+)+/g)].map(([word]) =>
    word.replace(/'([^']*)'|"([^"]*)"|([^'"]+)/g, (_, literal?: string, quoted?: string, plain?: string) =>
      literal === undefined ? fill(quoted ?? plain!) : literal,
    ),
  )
  function fill(text: string): string {
    return text.replace(/\$([A-Z_]+)/g, (_, name: string) => {
      const value = variables[name]
      if (value === undefined) throw new Error(`nothing is known of $${name} in ${command}`)
      return value
    })
  }
  const valuesOf = (option: string) => words.flatMap((word, index) => (word === option ? [words[index + 1]!] : []))
  const [body] = valuesOf('-d')
  const headers = valuesOf('-H').map((header) => /^([^:]+): (.*)$/.exec(header)!.slice(1) as [string, string])
  return {
    method: valuesOf('-X')[0] ?? (body === undefined ? 'GET' : 'POST'),
    url: words.find((word) => word.startsWith('/client/'))!,
    headers: Object.fromEntries(headers),
    body,
  }
}
