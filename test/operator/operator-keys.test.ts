import { afterAll, beforeAll, expect, test } from 'vitest'
import { newId } from '../../src/ids.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { countAudited } from '../support/audited.ts'
import { buildAccount, buildOperatorKey } from '../support/builders.ts'

let app: TestApp
let token: string

beforeAll(async () => {
  app = await startTestApp()
  token = await buildOperatorKey(app)
})
afterAll(() => app.close())

const create = (body: unknown, key = token) => app.call('POST', '/operator/keys', { token: key, body })
const revoke = (keyId: string, key = token) => app.call('POST', `/operator/keys/${keyId}/revoke`, { token: key })
const list = (query: Record<string, string> = {}, key = token) =>
  app.call('GET', '/operator/keys', { token: key, query })

test('a key serves within its role and account as soon as it is created, and is shown once', async () => {
  const own = await buildAccount(app)
  const other = await buildAccount(app)
  const made = await create({ name: 'Front desk', role: 'staff', accountId: own.id })
  expect(made.body).toMatchObject({ name: 'Front desk', role: 'staff', accountId: own.id, revokedAt: null })
  const { key, ...row } = made.body
  const get = (id: string) => app.call('GET', `/operator/accounts/${id}`, { token: key })
  expect([(await get(own.id)).status, (await get(other.id)).status]).toEqual([200, 404])
  expect((await app.call('PATCH', `/operator/accounts/${own.id}`, { token: key, body: {} })).status).toBe(403)
  expect((await list({ limit: '100' })).body.keys).toContainEqual(row)
  const stored = await app.database.knex('operator_keys').where({ id: row.keyId }).first()
  expect(JSON.stringify(stored)).not.toContain(key)
})

test('a revoked key serves no longer, and revoking it again changes nothing', async () => {
  const { key, keyId } = (await create({ name: 'x', role: 'admin' })).body
  expect((await list({}, key)).status).toBe(200)
  const first = await revoke(keyId)
  app.clock.advance(1000)
  const second = await revoke(keyId)
  expect([first.status, second.body]).toEqual([200, first.body])
  expect((await list({}, key)).status).toBe(401)
  expect(await countAudited(app, 'revokeOperatorKey', keyId)).toBe(1)
})

test('keys are kept only by admin keys for all accounts; anything unknown is told', async () => {
  const account = await buildAccount(app)
  const bound = await buildOperatorKey(app, { accountId: account.id })
  const staff = await buildOperatorKey(app, { role: 'staff' })
  for (const key of [bound, staff]) {
    const answers = [await create({ name: 'x', role: 'staff' }, key), await list({}, key), await revoke(newId(0), key)]
    expect(answers.map(({ status }) => status)).toEqual([403, 403, 403])
  }
  expect((await create({ name: 'x', role: 'owner' })).status).toBe(400)
  const unknown = await create({ name: 'x', role: 'staff', accountId: newId(0) })
  expect([unknown.status, unknown.body.error.code]).toEqual([400, 'unknown_account'])
  for (const id of [newId(0), 'x', '%C3%A9']) expect((await revoke(id)).status).toBe(404)
})

test('the list goes page by page, the oldest first', async () => {
  for (const name of ['a', 'b', 'c']) {
    app.clock.advance(1)
    await create({ name, role: 'staff' })
  }
  const all = (await list({ limit: '100' })).body
  expect(all.nextCursor).toBe(null)
  const pages = []
  for (let cursor: string | null | undefined; cursor !== null;) {
    const { body } = await list({ limit: '2', ...(cursor ? { cursor } : {}) })
    expect(body.keys.length).toBeLessThanOrEqual(2)
    pages.push(...body.keys)
    cursor = body.nextCursor
  }
  expect(pages).toEqual(all.keys)
  const ids = pages.map(({ keyId }) => keyId)
  expect(ids).toEqual([...ids].sort())
})

// Last: it leaves one key.
test('the last admin key for all accounts stays, also when the last two are revoked at once', async () => {
  const admins = (await list({ limit: '100' })).body.keys.filter(
    ({ role, accountId, revokedAt }: any) => role === 'admin' && accountId === null && revokedAt === null,
  )
  const own = admins[0].keyId
  for (const { keyId } of admins.slice(1)) expect((await revoke(keyId)).status).toBe(200)
  const { key, keyId } = (await create({ name: 'second', role: 'admin' })).body
  const answers = await Promise.all([revoke(own), revoke(keyId, key)])
  expect(answers.map(({ status }) => status).sort()).toEqual([200, 409])
  expect(answers.find(({ status }) => status === 409)!.body.error.code).toBe('last_admin_key')
})
