/**
 * Every forged token at every operation that asks for one: access tokens and patients' tokens at the client contract, keys at
 * the operator's. Made from both contracts, so that a new operation is in it.
 */
import { execFile } from 'node:child_process'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { insertOperatorKey } from '../../src/auth/operator-keys-repository.ts'
import { hashSecret, newSecret } from '../../src/crypto.ts'
import { newId } from '../../src/ids.ts'
import { buildTenant, requestOtp, type Tenant } from '../fuzz/fuzz-world.ts'
import { client, operator, startTestApp, type TestApp } from '../support/app.ts'
import type { ContractOperation } from '../support/contract-checker.ts'
import { Forger, type Forgery } from './forged-tokens.ts'

const ROOT = join(import.meta.dirname, '../..')
const AT_ONCE = 16
const CLIENT_AUDIENCE = 'laboratory-integration-service/client'
const PATIENT_AUDIENCE = 'laboratory-integration-service/patient'

let app: TestApp
let tenant: Tenant
let stranger: Tenant
let access: Forger
let patient: Forger
let accessForgeries: Forgery[]

beforeAll(async () => {
  app = await startTestApp()
  tenant = await buildTenant(app, 'catch_all')
  stranger = await buildTenant(app, 'catch_all')
  const { accessToken, patientToken, link, otp, sealing } = app.keys
  const nowSeconds = Math.floor(app.clock.nowMs() / 1000)
  const others = { links: link, codes: otp, sealing, 'the settings': Buffer.alloc(32, 7) }
  access = new Forger({
    token: tenant.account.token,
    key: accessToken,
    typ: 'at+jwt',
    audience: CLIENT_AUDIENCE,
    otherTyp: 'pt+jwt',
    otherAudience: PATIENT_AUDIENCE,
    otherKeys: { patients: patientToken, ...others },
    skewSeconds: 30,
    nowSeconds,
  })
  patient = new Forger({
    token: tenant.patientToken,
    key: patientToken,
    typ: 'pt+jwt',
    audience: PATIENT_AUDIENCE,
    otherTyp: 'at+jwt',
    otherAudience: CLIENT_AUDIENCE,
    otherKeys: { integrators: accessToken, ...others },
    skewSeconds: 0,
    nowSeconds,
  })
  const { clientId, clientSecret } = tenant.account
  const credentials = { clientID: clientId, clientSecret }
  const { refreshToken } = (await app.call('POST', '/client/auth/token', { body: credentials })).body
  accessForgeries = [
    ...access.all(),
    ['a refresh token', refreshToken],
    ['a patient token', tenant.patientToken],
    ['the token of a code', (await requestOtp(app, stranger.account, stranger.patientContact)).otpToken],
    ['a client secret', clientSecret],
    ['a client id', clientId],
    ['an account id', tenant.account.id],
    ['an operator key', newSecret()],
  ]
})
afterAll(() => app.close())

const isProtected = ({ needsToken }: ContractOperation) => needsToken
const takesPatientToken = (operation: ContractOperation) =>
  ((operation as unknown as { security?: object[] }).security ?? []).some((scheme) => 'patient' in scheme)
const pathOf = ({ path }: ContractOperation) => path.replace(/\{[^}]+\}/g, newId(0))

async function inTurns<T>(items: T[], work: (item: T) => Promise<void>): Promise<void> {
  const rest = [...items]
  const worker = async () => {
    for (let item = rest.shift(); item !== undefined; item = rest.shift()) await work(item)
  }
  await Promise.all(Array.from({ length: AT_ONCE }, worker))
}

/** @returns each that was not refused as it must be, and how */
async function believed(forgeries: Forgery[], call: (token: string) => ReturnType<TestApp['call']>, details: string) {
  const wrong: string[] = []
  await inTurns(forgeries, async ([what, token]) => {
    const { status, body, headers } = await call(token)
    const isRefused = status === 401 && body.error.details === details && headers['www-authenticate'] === 'Bearer'
    if (!isRefused) wrong.push(`${what}: ${status} ${JSON.stringify(body).slice(0, 200)}`)
  })
  return wrong
}

describe('an access token', () => {
  test('is made well by the forger when nothing is wrong with it, and within the skew', async () => {
    const { nowSeconds } = access.kind
    for (const token of [access.with({ jti: 'x' }), access.with({ exp: nowSeconds - 29 })]) {
      expect((await app.call('GET', '/client/labs', { token })).status).toBe(200)
    }
    expect(accessForgeries.length).toBeGreaterThan(100)
  })

  test.each(client.operations.filter(isProtected))('that is forged is 401 at $method $path', async (operation) => {
    const call = (token: string) => app.call(operation.method, pathOf(operation), { token })
    expect(await believed(accessForgeries, call, 'invalid access token')).toEqual([])
  })

  test('that is forged is 401 also where a sound patient token is beside it', async () => {
    for (const operation of client.operations.filter(takesPatientToken)) {
      const headers = { 'patient-authorization': `Bearer ${tenant.patientToken}` }
      const call = (token: string) => app.call(operation.method, pathOf(operation), { token, headers })
      expect(await believed(accessForgeries, call, 'invalid access token')).toEqual([])
    }
  })
})

describe("a patient's token", () => {
  const callWith =
    (operation: ContractOperation, { account, labs }: Tenant) =>
    (token: string) =>
      app.call(operation.method, pathOf(operation), {
        token: account.token,
        headers: { 'patient-authorization': `Bearer ${token}` },
        query: { labID: labs[0]!.id },
      })
  const operations = client.operations.filter(takesPatientToken)

  test.each(operations)('is taken at $method $path when nothing is wrong with it', async (operation) => {
    expect((await callWith(operation, tenant)(patient.with({ jti: 'x' }))).status).toBe(200)
  })

  test.each(operations)('that is forged is 401 at $method $path', async (operation) => {
    const { claims } = patient
    const ofTheirs: Forgery[] = [
      ['another contact', patient.with({ contact: Buffer.alloc(32).toString('base64url') })],
      ['a contact that is a list', patient.with({ contact: [claims.contact] })],
      ['an empty contact', patient.with({ contact: '' })],
      ['an earlier login', patient.with({ epoch: Number(claims.epoch) - 1 })],
      ['a later login', patient.with({ epoch: Number(claims.epoch) + 1 })],
      ['a login as text', patient.with({ epoch: String(claims.epoch) })],
      ["another account's contact", patient.with({ sub: stranger.account.id })],
      ['an access token', tenant.account.token],
      ["another account's token", stranger.patientToken],
    ]
    const forgeries = [...patient.all(), ...ofTheirs]
    expect(await believed(forgeries, callWith(operation, tenant), 'invalid patient token')).toEqual([])
    const ours: Forgery[] = [['a sound one of another account', tenant.patientToken]]
    expect(await believed(ours, callWith(operation, stranger), 'invalid patient token')).toEqual([])
  })
})

describe('an operator key', () => {
  let forgeries: Forgery[]
  let key: string

  beforeAll(async () => {
    key = newSecret()
    const revoked = newSecret()
    const row = { name: 'x', role: 'admin', accountId: null, createdAt: app.clock.now() }
    const id = newId(app.clock.nowMs())
    await insertOperatorKey(app.database.knex, { ...row, id, keyHash: hashSecret(key) })
    const revokedId = newId(app.clock.nowMs())
    await insertOperatorKey(app.database.knex, { ...row, id: revokedId, keyHash: hashSecret(revoked) })
    await app.call('POST', `/operator/keys/${revokedId}/revoke`, { token: key })
    const flipped = key[0] === 'A' ? `B${key.slice(1)}` : `A${key.slice(1)}`
    forgeries = [
      ['a revoked key', revoked],
      ['another key', newSecret()],
      ['another first letter', flipped],
      ['its last letter cut', key.slice(0, -1)],
      ['a letter more', `${key}A`],
      ['padding', `${key}=`],
      ['its case turned', key.replace(/[A-Za-z]/g, (letter) => (letter === letter.toUpperCase() ? letter.toLowerCase() : letter.toUpperCase()))],
      ['its id', id],
      ['its hash in hexadecimal', hashSecret(key).toString('hex')],
      ['its hash in base64', hashSecret(key).toString('base64url')],
      ['a wildcard', '%'],
      ['its beginning and a wildcard', `${key.slice(0, 10)}%`],
      ['SQL', "'OR'1'='1"],
      ['an operator', '{"$ne":""}'],
      ['twice, with a comma', `${key},${key}`],
      ['twice, with a blank', `${key} ${key}`],
      ['not ASCII', encodeURIComponent(`${key}\u00e9`)],
      ['100 KB', 'x'.repeat(100_000)],
      ['null', 'null'],
      ['true', 'true'],
      ['an access token', tenant.account.token],
      ['a patient token', tenant.patientToken],
      ['a client secret', tenant.account.clientSecret],
      ['an unsigned token', access.all().find(([what]) => what === 'alg "none", unsigned')![1]],
    ] // prettier-ignore
  })

  test.each(operator.operations.filter(isProtected))('that is forged is 401 at $method $path', async (operation) => {
    const call = (token: string) => app.call(operation.method, pathOf(operation), { token })
    expect(await believed(forgeries, call, 'invalid operator key')).toEqual([])
    for (const authorization of [`Basic ${key}`, key, 'Bearer', '', `Bearer\t${key}`, `Bearer  ${key} ${key}`]) {
      const headers = { authorization, 'x-api-key': key, cookie: `key=${key}` }
      const query = { access_token: key, key }
      expect((await app.call(operation.method, pathOf(operation), { headers, query })).status).toBe(401)
    }
  })

  test('is a sound one where nothing is wrong with it', async () => {
    expect((await app.call('GET', '/operator/keys', { token: key })).status).toBe(200)
    const headers = { authorization: `Bearer   ${key}` }
    expect((await app.call('GET', '/operator/keys', { headers })).status).toBe(200)
  })
})

test.each(['src/server.ts', 'daemon/main.ts'])(
  '%s does not start with a key of less than 256 bits',
  async (script) => {
    const start = (bytes: number) =>
      promisify(execFile)(process.execPath, [join(ROOT, script)], {
        cwd: tmpdir(),
        env: { DATA_DIR: tmpdir(), NODE_ENV: 'production', SECRETS_KEY: Buffer.alloc(bytes, 7).toString('base64') },
      })
    await Promise.all(
      [0, 1, 31].map(async (bytes) => {
        await expect(start(bytes)).rejects.toMatchObject({
          code: 1,
          stderr: expect.stringMatching(/SECRETS_KEY must be .*at least 32 random bytes/),
        })
      }),
    )
  },
  60_000,
)
