import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { purgeExpired } from '../../daemon/jobs/purge-expired.ts'
import { newRefreshToken } from '../../src/auth/refresh-token.ts'
import { deriveKeys, hashSecret, newSecret } from '../../src/crypto.ts'
import { newId } from '../../src/ids.ts'
import { createLogger } from '../../src/logger.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { buildAccount, type TestAccount } from '../support/builders.ts'

const TOKEN = '/client/auth/token'
const REFRESH = '/client/auth/token/refresh'
const SECOND = 1000
const HOUR = 3600 * SECOND
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

async function purge(): Promise<void> {
  await app.database.knex('purge_runs').delete()
  await purgeExpired({
    database: app.database,
    clock: app.clock,
    log: createLogger('daemon', 'silent'),
    settings: { payloadRetentionDays: 30, logRetentionDays: 90 },
    stopping: () => false,
  })()
}
const isStored = async (refreshToken: string) =>
  (await app.database.knex('refresh_tokens').where({ token_hash: hashSecret(refreshToken) })).length > 0
const familyOf = async (refreshToken: string): Promise<string> =>
  (
    await app.database
      .knex('refresh_tokens')
      .where({ token_hash: hashSecret(refreshToken) })
      .first()
  ).family_id

/** A token that was used, whose row is purged, and the newest one of its family, which lives. */
async function usedAndPurged(used?: string): Promise<{ used: string; newest: string }> {
  const first = used ?? (await signIn()).refreshToken
  app.clock.advance(20 * DAY)
  const newest = (await refresh(first)).body.refreshToken
  app.clock.advance(10 * DAY + HOUR + 1)
  await purge()
  expect([await isStored(first), await isStored(newest)]).toEqual([false, true])
  return { used: first, newest }
}

/** Puts a token in the place of the first one of a new session, as another process may have made it. */
async function signInWith(make: (familyId: string) => string): Promise<string> {
  const { refreshToken } = await signIn()
  const other = make(await familyOf(refreshToken))
  const row = app.database.knex('refresh_tokens').where({ token_hash: hashSecret(refreshToken) })
  await row.update({ token_hash: hashSecret(other) })
  return other
}

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
    await expect.poll(() => use(account.token), { timeout: 3000 }).toBe(401)
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

describe('a refresh token that was used, and whose row is purged', () => {
  test('still revokes everything that came of it, and nothing else', async () => {
    const { used, newest } = await usedAndPurged()
    const other = await signIn()
    const unknown = await refresh(newSecret())
    const reused = await refresh(used)
    expect(reused.status).toBe(401)
    expect(reused.body).toEqual({ ...unknown.body, requestId: reused.body.requestId })
    expect((await refresh(newest)).status).toBe(401)
    expect((await refresh(other.refreshToken)).status).toBe(200)
  })

  test('is 401 in 20 uses at once beside the newest one, which serves once at most', async () => {
    const { used, newest } = await usedAndPurged()
    const answers = await Promise.all(Array.from({ length: 20 }, (_, n) => refresh(n === 10 ? newest : used)))
    expect(answers.filter((_, n) => n !== 10).map(({ status }) => status)).toEqual(Array(19).fill(401))
    expect([200, 401]).toContain(answers[10]!.status)
    expect((await refresh(answers[10]!.body.refreshToken ?? newest)).status).toBe(401)
  })

  test('revokes nothing in the hands of another client, nor changed, nor made up for a known family', async () => {
    const { used, newest } = await usedAndPurged()
    const other = await buildAccount(app)
    expect((await refresh(used, other.clientId)).status).toBe(401)
    expect((await refresh(used, newId(0))).status).toBe(401)
    const changed = used.slice(0, -1) + (used.endsWith('A') ? 'B' : 'A')
    const madeUp = newRefreshToken(deriveKeys(Buffer.alloc(32, 8)), await familyOf(newest))
    for (const sent of [changed, `${used}=`, `${used}\n`, madeUp]) expect((await refresh(sent)).status).toBe(401)
    expect((await refresh(newest)).status).toBe(200)
  })

  test.each([
    ['made before it named its family', () => newSecret()],
    ['made under another SECRETS_KEY', (id: string) => newRefreshToken(deriveKeys(Buffer.alloc(32, 8)), id)],
  ])('and was %s is 401 without harm; until then it serves, once', async (_, make) => {
    const { used, newest } = await usedAndPurged(await signInWith(make))
    expect((await refresh(used)).status).toBe(401)
    expect((await refresh(newest)).status).toBe(200)
  })

  test('is 401 when its whole family is purged', async () => {
    const { used, newest } = await usedAndPurged()
    const familyId = await familyOf(newest)
    app.clock.advance(20 * DAY + HOUR)
    await purge()
    expect(await app.database.knex('refresh_token_families').where({ id: familyId })).toEqual([])
    expect((await refresh(used)).status).toBe(401)
    expect((await refresh(newest)).status).toBe(401)
  })
})
