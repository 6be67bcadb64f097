import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { newId } from '../../src/ids.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { buildAccount, type TestAccount } from '../support/builders.ts'

const TOKEN = '/client/auth/token'
const REFRESH = '/client/auth/token/refresh'
const SECOND = 1000
const DAY = 24 * 3600 * SECOND

let app: TestApp
let account: TestAccount

beforeAll(async () => {
  app = await startTestApp()
})
afterAll(() => app.close())
beforeEach(async () => {
  account = await buildAccount(app)
})

async function signIn(): Promise<{ authToken: string; refreshToken: string; expiresIn: number }> {
  const body = { clientID: account.clientId, clientSecret: account.clientSecret }
  const answer = await app.call('POST', TOKEN, { body })
  expect(answer.status).toBe(200)
  return answer.body
}
const refresh = (refreshToken: string, clientID = account.clientId) =>
  app.call('POST', REFRESH, { body: { clientID, refreshToken } })
const use = async (token: string) => (await app.call('GET', '/client/labs', { token })).status

/** Calls meanwhile, and then revokes the account's secret and ends its sessions, as one transaction. */
async function revokedMeanwhile<T>(calls: () => Promise<T>): Promise<[first: T | 'waits', then: T]> {
  let asked!: Promise<T>
  const first = await app.database.transaction(async (trx) => {
    await trx('client_secrets').where({ client_id: account.clientId }).forUpdate()
    asked = calls()
    const before = await Promise.race([asked, new Promise<'waits'>((resolve) => setTimeout(resolve, 500, 'waits'))])
    const now = app.clock.now()
    await trx('client_secrets').where({ client_id: account.clientId }).update({ slot: null, revoked_at: now })
    await trx('refresh_token_families').where({ account_id: account.id }).update({ revoked_at: now })
    return before
  })
  return [first, await asked]
}

describe('an access token', () => {
  test('is issued for the right pair and serves for expiresIn seconds and 30 more of skew', async () => {
    const { authToken, expiresIn } = await signIn()
    expect(expiresIn).toBe(600)
    expect(await use(authToken)).toBe(200)
    app.clock.advance((expiresIn + 29) * SECOND)
    expect(await use(authToken)).toBe(200)
    app.clock.advance(1 * SECOND)
    expect(await use(authToken)).toBe(401)
  })

  test('that was never used before it expired does not serve either', async () => {
    const { authToken, expiresIn } = await signIn()
    app.clock.advance((expiresIn + 30) * SECOND)
    expect(await use(authToken)).toBe(401)
  })

  test('is not issued for a secret that is revoked at that moment: no session outlives the end of all', async () => {
    const body = { clientID: account.clientId, clientSecret: account.clientSecret }
    const [first, then] = await revokedMeanwhile(() => app.call('POST', TOKEN, { body }))
    expect([first, then.status]).toEqual(['waits', 401])
    expect(
      await app.database.knex('refresh_token_families').where({ account_id: account.id, revoked_at: null }),
    ).toEqual([])
  })

  test.each([
    ['an unknown client', () => ({ clientID: newId(0) })],
    ['a malformed client', () => ({ clientID: "' OR 1=1 --" })],
    ['the client in upper case', () => ({ clientID: account.clientId.toUpperCase() })],
    ['a wrong secret', () => ({ clientSecret: 'x' })],
    ['an empty secret', () => ({ clientSecret: '' })],
  ])('is refused with one 401 for %s', async (_, wrong) => {
    const body = { clientID: account.clientId, clientSecret: account.clientSecret, ...wrong() }
    const answer = await app.call('POST', TOKEN, { body })
    expect(answer.status).toBe(401)
    expect(answer.body).toMatchObject({ message: 'Unauthorized', error: { details: 'invalid client credentials' } })
  })

  test('is refused with 400 when a field is missing or no string', async () => {
    expect((await app.call('POST', TOKEN, { body: { clientID: account.clientId } })).status).toBe(400)
    expect((await app.call('POST', TOKEN, { body: { clientID: 1, clientSecret: [] } })).status).toBe(400)
  })

  test('and its refresh are got whatever the Authorization header says', async () => {
    const headers = { authorization: 'Basic Zm9vOmJhcg==' }
    const body = { clientID: account.clientId, clientSecret: account.clientSecret }
    const { status, body: tokens } = await app.call('POST', TOKEN, { body, headers })
    expect(status).toBe(200)
    const again = { clientID: account.clientId, refreshToken: tokens.refreshToken }
    expect((await app.call('POST', REFRESH, { body: again, headers })).status).toBe(200)
  })

  test.each([
    ['none', undefined],
    ['another scheme', (token: string) => `Basic ${token}`],
    ['no scheme', (token: string) => token],
    ['nothing after it', () => 'Bearer'],
    ['two tokens', (token: string) => `Bearer ${token} ${token}`],
    ['two tokens after two spaces', (token: string) => `Bearer  ${token} ${token}`],
    ['a comma', (token: string) => `Bearer ${token},Bearer ${token}`],
    ['no space', (token: string) => `Bearer${token}`],
    ['a tab', (token: string) => `Bearer\t${token}`],
    ['a space and a tab', (token: string) => `Bearer \t${token}`],
  ])('sent with a header that has %s is 401, never 400', async (_, header) => {
    const headers: Record<string, string> = header ? { authorization: header(account.token) } : {}
    const answer = await app.call('GET', '/client/labs', { headers })
    expect([answer.status, answer.body.error.details]).toEqual([401, 'invalid access token'])
    expect(answer.headers['www-authenticate']).toBe('Bearer')
  })

  test.each(['Bearer  ', 'bearer     '])('may have more than one space before it: "%s"', async (scheme) => {
    const answer = await app.call('GET', '/client/labs', { headers: { authorization: `${scheme}${account.token}` } })
    expect(answer.status).toBe(200)
  })

  test('counts in the header only, whatever the body or the query holds', async () => {
    const body = { access_token: account.token }
    const query = { access_token: account.token }
    expect((await app.call('POST', '/client/crm/lead/create', { body, query })).status).toBe(401)
    const both = await app.call('POST', '/client/crm/lead/create', { body, query, token: account.token })
    expect(both.body.error.details).toContain('branchID is required')
  })

  test('of an account that is gone is 401 a second later', async () => {
    expect(await use(account.token)).toBe(200)
    await app.database.knex('accounts').where({ id: account.id }).del()
    app.clock.advance(1 * SECOND)
    expect(await use(account.token)).toBe(401)
  })
})

describe('a refresh token', () => {
  test('serves once and brings the next pair', async () => {
    const first = await signIn()
    const { status, body: second } = await refresh(first.refreshToken)
    expect(status).toBe(200)
    expect(second.refreshToken).not.toBe(first.refreshToken)
    expect(await use(second.authToken)).toBe(200)
    expect((await refresh(second.refreshToken)).status).toBe(200)
  })

  test('of 20 uses at once serves one, and the others do no harm', async () => {
    const { refreshToken } = await signIn()
    const answers = await Promise.all(Array.from({ length: 20 }, () => refresh(refreshToken)))
    const winners = answers.filter(({ status }) => status === 200)
    expect(winners).toHaveLength(1)
    expect(answers.filter(({ status }) => status === 401)).toHaveLength(19)
    expect((await refresh(winners[0]!.body.refreshToken)).status).toBe(200)
  })

  test('that comes back within 10 seconds is 401 and harms nothing', async () => {
    const { refreshToken } = await signIn()
    const next = (await refresh(refreshToken)).body.refreshToken
    app.clock.advance(10 * SECOND)
    const again = await refresh(refreshToken)
    expect([again.status, again.body.error.details]).toEqual([401, 'invalid client credentials'])
    expect((await refresh(next)).status).toBe(200)
  })

  test('that comes back later revokes everything that came of it, and nothing else', async () => {
    const other = await signIn()
    const { refreshToken } = await signIn()
    const next = (await refresh(refreshToken)).body.refreshToken
    app.clock.advance(10 * SECOND + 1)
    expect((await refresh(refreshToken)).status).toBe(401)
    expect((await refresh(next)).status).toBe(401)
    expect((await refresh(other.refreshToken)).status).toBe(200)
  })

  test('lasts 30 days without use, and each use begins them anew', async () => {
    const { refreshToken } = await signIn()
    app.clock.advance(30 * DAY - 1)
    const next = (await refresh(refreshToken)).body.refreshToken
    app.clock.advance(30 * DAY - 1)
    const last = (await refresh(next)).body.refreshToken
    app.clock.advance(30 * DAY)
    expect((await refresh(last)).status).toBe(401)
  })

  test('serves its own client only, and another one can not use it up', async () => {
    const { refreshToken } = await signIn()
    const other = await buildAccount(app)
    expect((await refresh(refreshToken, other.clientId)).status).toBe(401)
    expect((await refresh(refreshToken, newId(0))).status).toBe(401)
    expect((await refresh('x')).status).toBe(401)
    expect((await refresh(refreshToken)).status).toBe(200)
  })

  test('is not stored, nor is a client secret: only their hashes are', async () => {
    const { refreshToken } = await signIn()
    const rows = [await app.database.knex('refresh_tokens'), await app.database.knex('client_secrets')]
    const stored = JSON.stringify(rows, (_, value) =>
      value?.type === 'Buffer' ? Buffer.from(value.data).toString('latin1') : value,
    )
    expect(stored).not.toContain(refreshToken)
    expect(stored).not.toContain(account.clientSecret)
  })

  test('and an access token do not stand in for each other', async () => {
    const { authToken, refreshToken } = await signIn()
    expect(await use(refreshToken)).toBe(401)
    expect((await refresh(authToken)).status).toBe(401)
  })
})
