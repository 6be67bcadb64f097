/**
 * Proves of the decisions, for the lab's own contract: "A tenant can't see, change, or learn of the existence of anything that is
 * not its own." Each line is one field of one operation: whoever works in one account and names a record of another is answered
 * as if nobody had it, and nothing changes anywhere.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { unknownId } from '../fuzz/fuzz-world.ts'
import { operator, startTestApp, type TestApp } from '../support/app.ts'
import type { ContractOperation } from '../support/contract-checker.ts'
import { buildLab, buildOperatorKey, buildPackage, buildTest, newContact } from '../support/builders.ts'
import { buildOperatorWorld, type OperatorCall, type OperatorWorld } from '../support/operator-calls.ts'
import {
  callOf,
  idsOf,
  NAMES,
  operatorFields,
  operations,
  pathWith,
  PERSONS,
  valueIn,
  WITHOUT_ACCOUNT,
  withValue,
} from './operator-table.ts'
import { malformed, NO_TEXTS, type TextField } from './tenancy-table.ts'

const fields = operatorFields()
/** A lab has its own; the account has the rest. */
const OF_A_LAB = new Set(['testId', 'packageId', 'importId', 'test', 'package', 'tests[]', 'tests[].test', 'packages[].package', 'items[].test', 'items[].package']) // prettier-ignore

const SCOPES = ['accountId', 'labID']

let app: TestApp
let world: OperatorWorld
let stranger: OperatorWorld
/** Another lab of the same account. */
let sibling: OperatorWorld
let tables: string[]
let cells = 0

beforeAll(async () => {
  app = await startTestApp()
  // Deliveries are judged by the database's clock, which is the real one.
  app.clock.set(new Date(await app.database.readTimeMs()).toISOString())
  const token = await buildOperatorKey(app)
  world = await buildOperatorWorld(app, token)
  stranger = await buildOperatorWorld(app, token)
  const lab = await buildLab(app, world.account)
  const inLab = await buildTest(app, lab)
  sibling = { ...world, lab, test: inLab, pack: await buildPackage(app, lab, [inLab]) }
  const [rows] = await app.database.knex.raw(
    `SELECT table_name AS name FROM information_schema.tables
      WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE'`,
  )
  tables = rows.map(({ name }: { name: string }) => name)
})
afterAll(async () => {
  console.log(`tenancy of the operator's contract: ${cells} cells of ${fields.length} fields`)
  await app.close()
})

/** Of every row there is. */
async function checksum(): Promise<string> {
  const [rows] = await app.database.knex.raw(`CHECKSUM TABLE ${tables.map((name) => `\`${name}\``).join()}`)
  return JSON.stringify(rows)
}

/** Every row of the stranger: where a person is named, who has a contact in several accounts. */
async function strangersRows(): Promise<string> {
  const { knex } = app.database
  const [owned] = await knex.raw(
    `SELECT table_name AS name FROM information_schema.columns
      WHERE table_schema = DATABASE() AND column_name = 'account_id' AND table_name IN (${tables.map(() => '?').join()})`,
    tables,
  )
  const rows = await Promise.all(
    owned.map(({ name }: { name: string }) => knex(name).where({ account_id: stranger.account.id })),
  )
  return JSON.stringify(rows.map((found) => found.map((row: object) => JSON.stringify(row)).sort()))
}

async function send({ operation }: TextField, { path, ...call }: OperatorCall, token: string) {
  cells += 1
  return app.call(operation.method, path, { ...call, token })
}

/** The answer without what is each request's own; a refusal may end with the id that was sent. */
function lookOf({ status, body, headers }: Awaited<ReturnType<typeof send>>, sent: unknown): string {
  const { requestId: _, ...rest } = body
  const { date, 'x-request-id': id, 'content-length': length, etag, ...shown } = headers
  const details = String(rest.error?.details)
  if (details.endsWith(` ${sent}`)) rest.error = { ...rest.error, details: details.slice(0, -String(sent).length) }
  return JSON.stringify({ status, shown, rest }).replace(/\b[0-9a-hjkmnp-tv-z]{26}\b/g, '<id>')
}

function nobodysOf(path: string): string {
  if (path === 'rateListType') return 'Nowhere'
  if (path === 'contact') return newContact()
  return path === 'eventId' ? `evt_${unknownId(app)}` : unknownId(app)
}

/** Rows of a list. */
const listed = (body: object) => Object.values(body).find(Array.isArray) as unknown[] | undefined

describe.each(fields.map((field) => ({ ...field, name: nameOf(field) })))('$name', (field) => {
  const { operation, place, path } = field
  const isScope =
    place === 'path' && SCOPES.some((scope) => scope === path && operation.path.split('/')[3] === `{${path}}`)
  const isPerson = PERSONS.has(path)

  test('of another account is like one that nobody has, with every key, and nothing changes', async () => {
    const own = await callOf(field, world)
    const foreign = await callOf(field, stranger)
    const strange: [string, unknown][] = [['of another account', valueIn(field, foreign)]]
    if (OF_A_LAB.has(path))
      strange.push(['of another lab of the account', valueIn(field, await callOf(field, sibling))])
    const keys = await keysOf(operation, own)
    // A key for all accounts reaches the other account, too, by that account's path.
    const asking = isScope ? keys.slice(0, 2) : keys
    const before = isPerson ? await strangersRows() : await checksum()
    const statuses: number[] = []
    for (const token of asking) {
      const nobodys = nobodysOf(path)
      const unknown = await send(field, withValue(field, own, nobodys), token)
      const look = lookOf(unknown, nobodys)
      statuses.push(unknown.status)
      if (unknown.status === 200 && operation.method === 'GET' && !isPerson) expect(listed(unknown.body)).toEqual([])
      for (const [what, value] of strange) {
        const answer = await send(field, withValue(field, own, value), token)
        expect([what, lookOf(answer, value)]).toEqual([what, look])
        expect(JSON.stringify(answer.body)).not.toContain(stranger.account.id)
      }
      if (place === 'path' && !isScope) await wholePathIsUnknown(field, own, foreign, token)
    }
    // Staff may be refused before anything is looked up; an administrator is not.
    const allowed = place === 'path' ? [404] : isPerson ? [200, 201] : isFilter(field) ? [200, 404] : [400, 404]
    expect([...allowed, 403]).toContain(statuses[0])
    for (const status of statuses.slice(1)) expect(allowed).toContain(status)

    const token = asking.at(-1)!
    if (!isPerson && !NAMES.has(path)) await otherSpellingsAreNone(field, own, token)
    expect(isPerson ? await strangersRows() : await checksum()).toBe(before)

    // All of it was refused for the one id: with its own the same call is taken.
    const taken = await send(field, own, token)
    expect([200, 201], JSON.stringify(taken.body)).toContain(taken.status)
    if (isFilter(field)) expect(listed(taken.body)).not.toEqual([])
  })
})

function nameOf({ operation, place, path }: TextField): string {
  return `${operation.operationId} ${place} ${path}`
}

function isFilter({ operation, place }: TextField): boolean {
  return operation.method === 'GET' && place === 'query'
}

/** Of staff and of an administrator of the call's account, and of an administrator of all. */
async function keysOf(operation: ContractOperation, call: OperatorCall): Promise<string[]> {
  const accountId = idsOf(operation, call.path).accountId ?? world.account.id
  const bound = (role: string) => buildOperatorKey(app, { role, accountId })
  return [await bound('staff'), await bound('admin'), world.token]
}

/** Also where every record of the path is the other account's. */
async function wholePathIsUnknown(field: TextField, own: OperatorCall, foreign: OperatorCall, token: string) {
  const { operation, path } = field
  const theirs = Object.entries(idsOf(operation, foreign.path)).filter(([name]) => !SCOPES.includes(name))
  const nobodys = theirs.map(([name]) => [name, nobodysOf(name)] as const)
  const looks: string[] = []
  for (const ids of [theirs, nobodys].map((entries) => Object.fromEntries(entries))) {
    const answer = await send(field, { ...own, path: pathWith(operation, own.path, ids) }, token)
    looks.push(lookOf(answer, ids[path]))
  }
  expect(looks[0]).toBe(looks[1])
}

async function otherSpellingsAreNone(field: TextField, own: OperatorCall, token: string): Promise<void> {
  const nobodys = nobodysOf(field.path)
  const look = lookOf(await send(field, withValue(field, own, nobodys), token), nobodys)
  for (const [what, wrong] of malformed(valueIn(field, own)!)) {
    expect([what, lookOf(await send(field, withValue(field, own, wrong), token), wrong)]).toEqual([what, look])
  }
  if (field.place !== 'body') return
  for (const [what, wrong] of NO_TEXTS) {
    expect([what, (await send(field, withValue(field, own, wrong), token)).status]).toEqual([what, 400])
  }
}

test('every other operation of the contract names an account or a lab in its path', () => {
  const others = operator.operations.filter(({ path }) => !/\{(accountId|labID)\}/.test(path))
  expect(others.map(({ operationId }) => operationId).sort()).toEqual(WITHOUT_ACCOUNT)
})

describe('a key that is bound to an account, where no account is named,', () => {
  const forAll: [string, object | undefined][] = [
    ['createAccount', { name: 'Arogya', adminEmail: 'a@b.example' }],
    ['createOperatorKey', { name: 'x', role: 'admin' }],
    ['listOperatorKeys', undefined],
    ['revokeOperatorKey', undefined],
  ]

  test.each(forAll)('may not %s', async (operationId, body) => {
    const token = await buildOperatorKey(app, { accountId: world.account.id })
    const { method, path } = operations.get(operationId)!
    const before = await checksum()
    const answer = await app.call(method, path.replace('{keyId}', unknownId(app)), { token, body })
    expect([answer.status, answer.body.error.code]).toEqual([403, 'operator_forbidden'])
    expect(await checksum()).toBe(before)
  })

  test.each(['listAccounts', 'listFailingWebhooks', 'listAuditEntries'])(
    'sees by %s only what is its own',
    async (id) => {
      const token = await buildOperatorKey(app, { accountId: stranger.account.id })
      for (const owner of [world, stranger]) {
        const { path } = await callOf(
          fields.find(({ operation }) => operation.operationId === 'deleteAccountWebhook')!,
          owner,
        )
        await app.database
          .knex('webhooks')
          .where({ id: path.split('/').at(-1)! })
          .update({ first_failure_at: app.clock.now(), failed_attempts: 1, last_error: 'HTTP status 503' })
        await app.call('PATCH', `/operator/accounts/${owner.account.id}`, {
          token: world.token,
          body: { name: 'Arogya' },
        })
      }
      const { status, body } = await app.call('GET', operations.get(id)!.path, { token })
      expect([status, listed(body)!.length > 0]).toEqual([200, true])
      expect(new Set(listed(body)!.map((row: any) => row.accountId))).toEqual(new Set([stranger.account.id]))
    },
  )
})
