import { setTimeout } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { newId } from '../../src/ids.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { countAudited } from '../support/audited.ts'
import {
  buildAccount,
  buildLab,
  buildOperatorKey,
  buildParty,
  subscribeBody,
  type TestAccount,
} from '../support/builders.ts'

let app: TestApp
let token: string
let account: TestAccount

beforeAll(async () => {
  app = await startTestApp()
  token = await buildOperatorKey(app)
  account = await buildAccount(app)
})
afterAll(() => app.close())

const call = (method: string, path: string, body?: unknown, query: Record<string, string> = {}) =>
  app.call(method, `/operator${path}`, { token, body, query })
const ofAccount = (path = '', id = account.id) => `/accounts/${id}${path}`

describe('an account', () => {
  test('changes only in what is sent, and says whether it is a sandbox, which it stays', async () => {
    const body = { name: 'Arogya', adminEmail: 'a@b.example', sandbox: true }
    const made = (await call('POST', '/accounts', body)).body
    expect(made).toMatchObject({ mode: 'catch_all', sandbox: true })
    const path = ofAccount('', made.accountId)
    const changed = await call('PATCH', path, { adminEmail: 'c@d.example', sandbox: false, unknown: 1 })
    expect(changed.body).toEqual({ ...made, adminEmail: 'c@d.example' })
    expect((await call('PATCH', path, {})).body).toEqual(changed.body)
    expect((await call('GET', path)).body).toEqual(changed.body)
    expect((await call('PATCH', path, { timeZone: 'Asia/Poona' })).status).toBe(400)
    expect((await call('PATCH', path, { mode: 'both' })).status).toBe(400)
    expect((await call('GET', ofAccount('', newId(0)))).status).toBe(404)
  })

  test('of two changes of different fields at once both hold', async () => {
    const { accountId } = (await call('POST', '/accounts', { name: 'x', adminEmail: 'a@b.example' })).body
    const path = ofAccount('', accountId)
    const changes = [{ name: 'y' }, { adminEmail: 'y@y.example' }, { timeZone: 'Europe/Berlin' }]
    await Promise.all(changes.map((change) => call('PATCH', path, change)))
    expect((await call('GET', path)).body).toMatchObject(Object.assign({}, ...changes))
  })

  test('that is switched to parties asks its integrator for one within a second', async () => {
    const own = await buildAccount(app)
    const lab = await buildLab(app, own)
    const subscribe = () => app.call('POST', '/client/events/subscribe', { token: own.token, body: subscribeBody(lab) })
    expect((await subscribe()).status).toBe(200)
    expect((await call('PATCH', ofAccount('', own.id), { mode: 'party_scoped' })).body.mode).toBe('party_scoped')
    app.clock.advance(1000)
    expect((await subscribe()).body.error.code).toBe('party_required')
  })

  test('is switched when the answer is there, also to the repeat of a call whose answer was lost', async () => {
    const own = await buildAccount(app)
    const lab = await buildLab(app, own)
    const subscribe = () => app.call('POST', '/client/events/subscribe', { token: own.token, body: subscribeBody(lab) })
    expect((await subscribe()).status).toBe(200)
    // As a process leaves it that is killed after its commit.
    await app.database.knex('accounts').where({ id: own.id }).update({ mode: 'party_scoped' })
    const startedAt = performance.now()
    expect((await call('PATCH', ofAccount('', own.id), { mode: 'party_scoped' })).status).toBe(200)
    app.clock.advance(Math.floor(performance.now() - startedAt))
    expect((await subscribe()).body.error?.code).toBe('party_required')
  })

  test('is listed page by page', async () => {
    for (let n = 0; n < 3; n++) await buildAccount(app)
    const first = (await call('GET', '/accounts', undefined, { limit: '2' })).body
    const second = (await call('GET', '/accounts', undefined, { limit: '100', cursor: first.nextCursor })).body
    const all = (await call('GET', '/accounts', undefined, { limit: '100' })).body
    expect([...first.accounts, ...second.accounts]).toEqual(all.accounts)
    expect([first.accounts.length, second.nextCursor]).toEqual([2, null])
  })

  test('is found by the beginning of its name and by its mode', async () => {
    const body = { name: 'Zenith Care', adminEmail: 'a@b.example', mode: 'party_scoped' }
    const made = (await call('POST', '/accounts', body)).body
    const found = async (query: Record<string, string>) =>
      (await call('GET', '/accounts', undefined, query)).body.accounts
    expect(await found({ name: 'zenith' })).toEqual([made])
    expect(await found({ name: 'zenith', mode: 'catch_all' })).toEqual([])
    expect(await found({ name: 'zenith', mode: 'party_scoped' })).toEqual([made])
  })
})

describe('client secrets', () => {
  const tokenFor = (clientSecret: string, clientID: string) =>
    app.call('POST', '/client/auth/token', { body: { clientID, clientSecret } })

  test('are rotated without a gap: the newest two serve, at no time more', async () => {
    const { accountId } = (await call('POST', '/accounts', { name: 'x', adminEmail: 'a@b.example' })).body
    const rotate = async () => {
      app.clock.advance(1)
      return (await call('POST', ofAccount('/client-secrets/rotate', accountId))).body
    }
    const issued = [await rotate(), await rotate(), await rotate()]
    const statuses = await Promise.all(issued.map((made) => tokenFor(made.clientSecret, made.clientID)))
    expect(statuses.map(({ status }) => status)).toEqual([401, 200, 200])
    const { body } = await call('GET', ofAccount('/client-secrets', accountId))
    expect(body.clientID).toBe(issued[0].clientID)
    expect(body.clientSecrets.map(({ secretId }: any) => secretId)).toEqual(issued.map(({ secretId }) => secretId))
    expect(body.clientSecrets.map(({ revokedAt }: any) => revokedAt === null)).toEqual([false, true, true])
    expect(JSON.stringify(body)).not.toContain(issued[2].clientSecret)
  })

  test('that are rotated behind a clock which was set back: the newest two serve', async () => {
    const own = await buildAccount(app)
    const rotate = async () => (await call('POST', ofAccount('/client-secrets/rotate', own.id))).body
    const first = await rotate()
    app.clock.advance(-3_600_000)
    const issued = [first, await rotate(), await rotate()]
    app.clock.advance(3_600_000)
    const statuses = await Promise.all(issued.map((made) => tokenFor(made.clientSecret, made.clientID)))
    expect(statuses.map(({ status }) => status)).toEqual([401, 200, 200])
  })

  test('many rotations at once leave two valid ones', async () => {
    const own = await buildAccount(app)
    const answers = await Promise.all(
      Array.from({ length: 8 }, () => call('POST', ofAccount('/client-secrets/rotate', own.id))),
    )
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([201]))
    const { clientSecrets } = (await call('GET', ofAccount('/client-secrets', own.id))).body
    expect(clientSecrets.filter(({ revokedAt }: any) => revokedAt === null)).toHaveLength(2)
  })

  test('that are revoked get no token; sessions go on unless they are ended, too', async () => {
    const own = await buildAccount(app)
    const { refreshToken } = (await tokenFor(own.clientSecret, own.clientId)).body
    const refresh = (sent: string) =>
      app.call('POST', '/client/auth/token/refresh', { body: { clientID: own.clientId, refreshToken: sent } })
    const [{ secretId }] = (await call('GET', ofAccount('/client-secrets', own.id))).body.clientSecrets
    const path = ofAccount(`/client-secrets/${secretId}/revoke`, own.id)
    const revoked = await call('POST', path)
    expect(revoked.body.revokedAt).toBe(app.clock.now().toISOString())
    expect((await tokenFor(own.clientSecret, own.clientId)).status).toBe(401)
    const next = await refresh(refreshToken)
    expect(next.status).toBe(200)
    app.clock.advance(1000)
    expect((await call('POST', path, { endSessions: true })).body).toEqual(revoked.body)
    expect((await refresh(next.body.refreshToken)).status).toBe(401)
    // Each of the two has ended something; a third call has nothing to end.
    expect((await call('POST', path, { endSessions: true })).body).toEqual(revoked.body)
    expect(await countAudited(app, 'revokeClientSecret', secretId)).toBe(2)
    // Its slot is free.
    expect((await call('POST', ofAccount('/client-secrets', own.id))).status).toBe(201)
  })

  test('of another account are unknown', async () => {
    const own = await buildAccount(app)
    const [{ secretId }] = (await call('GET', ofAccount('/client-secrets', own.id))).body.clientSecrets
    for (const id of [secretId, newId(0), 'x']) {
      expect((await call('POST', ofAccount(`/client-secrets/${id}/revoke`))).status).toBe(404)
    }
    expect((await tokenFor(own.clientSecret, own.clientId)).status).toBe(200)
  })
})

describe('labs', () => {
  test('change in what is sent; an inactive one is gone for integrators until it is active again', async () => {
    const own = await buildAccount(app)
    const made = (await call('POST', ofAccount('/labs', own.id), { name: 'Baner', contact: '1', adminEmail: null }))
      .body
    const path = `/labs/${made.labID}`
    const branches = async () => (await app.call('GET', '/client/labs', { token: own.token })).body.branches
    const changed = (await call('PATCH', path, { name: 'Aundh', active: false, adminEmail: 'lab@x.example' })).body
    expect(changed).toEqual({ ...made, name: 'Aundh', active: false, adminEmail: 'lab@x.example' })
    expect(await branches()).toEqual([])
    expect((await call('PATCH', path, { active: true, adminEmail: null })).body).toEqual({ ...made, name: 'Aundh' })
    expect(await branches()).toEqual([{ branchID: made.labID, name: 'Aundh', contact: '1' }])
    expect((await call('GET', path)).body).toEqual({ ...made, name: 'Aundh' })
  })

  test('are listed for their account, active or not, and by whether they are', async () => {
    const own = await buildAccount(app)
    const open = await buildLab(app, own)
    app.clock.advance(1)
    const closed = await buildLab(app, own, { active: false })
    const ids = async (query: Record<string, string> = {}) =>
      (await call('GET', ofAccount('/labs', own.id), undefined, query)).body.labs.map(({ labID }: any) => labID)
    expect(await ids()).toEqual([open.id, closed.id])
    expect([await ids({ active: 'true' }), await ids({ active: 'false' })]).toEqual([[open.id], [closed.id]])
    expect((await call('GET', ofAccount('/labs', own.id), undefined, { active: 'maybe' })).status).toBe(400)
  })
})

test('parties are listed by kind and by the beginning of their name, and renamed', async () => {
  const own = await buildAccount(app)
  const make = async (kind: string, name: string) => {
    app.clock.advance(1)
    return (await call('POST', ofAccount('/parties', own.id), { kind, name })).body
  }
  const [a, b, c] = [await make('doctor', 'Dr Rao'), await make('doctor', 'Dr_Sen'), await make('hospital', 'DR X')]
  const list = async (query: Record<string, string>) =>
    (await call('GET', ofAccount('/parties', own.id), undefined, query)).body.parties
  expect(await list({})).toEqual([a, b, c])
  expect(await list({ kind: 'doctor' })).toEqual([a, b])
  expect(await list({ name: 'dr' })).toEqual([a, b, c])
  expect(await list({ name: 'dr_' })).toEqual([b])
  const path = ofAccount(`/parties/${a.partyId}`, own.id)
  expect((await call('PATCH', path, { name: 'Dr Anjali Rao' })).body).toEqual({ ...a, name: 'Dr Anjali Rao' })
  const foreign = await buildParty(app, account, 'doctor')
  expect((await call('PATCH', ofAccount(`/parties/${foreign.id}`, own.id), { name: 'x' })).status).toBe(404)
})

test('patients are kept by staff: created, found by contact, renamed; those of another account are unknown', async () => {
  const staff = await buildOperatorKey(app, { role: 'staff', accountId: account.id })
  const as = (method: string, path: string, body?: unknown, query: Record<string, string> = {}) =>
    app.call(method, `/operator/accounts/${path}`, { token: staff, body, query })
  const path = `${account.id}/patients`
  const asha = (await as('POST', path, { contact: '9812300001', name: 'Asha' })).body
  app.clock.advance(1)
  const ravi = (await as('POST', path, { contact: '9812300002', name: 'Ravi' })).body
  expect((await as('GET', path, undefined, { contact: '9812300001' })).body.patients).toEqual([asha])
  expect((await as('GET', path)).body.patients).toEqual([asha, ravi])
  const changed = await as('PATCH', `${path}/${ravi.patientId}`, { contact: '9812300001' })
  expect(changed.body).toEqual({ ...ravi, contact: '9812300001' })
  expect((await as('GET', `${path}/${ravi.patientId}`)).body).toEqual(changed.body)
  for (const contact of ['981230000', '+919812300001', '98123००001']) {
    expect((await as('POST', path, { contact, name: 'x' })).status).toBe(400)
  }
  const other = await buildAccount(app)
  expect((await call('GET', ofAccount(`/patients/${asha.patientId}`, other.id))).status).toBe(404)
  expect((await as('GET', `${other.id}/patients`)).status).toBe(404)
  // Nothing of a patient but the id is in the audit.
  const { body } = await call('GET', '/audit-entries', undefined, { accountId: account.id, operation: 'updatePatient' })
  expect(body.auditEntries[0].targets).toEqual({ patientId: ravi.patientId })
})

test('a patient who is erased while staff change the name is not found', async () => {
  const path = ofAccount('/patients')
  const { patientId } = (await call('POST', path, { contact: '9812300009', name: 'Asha' })).body
  const erasure = await app.database.knex.transaction()
  await erasure('patients').where({ id: patientId }).delete()
  const change = call('PATCH', `${path}/${patientId}`, { name: 'Asha K' })
  await setTimeout(100)
  await erasure.commit()
  expect((await change).status).toBe(404)
  expect(await countAudited(app, 'updatePatient', patientId)).toBe(0)
})

test('lead sources and rate lists are read as they were set, and an inactive telecaller can be activated', async () => {
  await call('PUT', ofAccount('/lead-sources'), { leadSources: ['b', 'a'] })
  await call('PUT', ofAccount('/rate-lists'), { rateListTypes: ['z', 'y'] })
  expect((await call('GET', ofAccount('/lead-sources'))).body.leadSources).toEqual(['b', 'a'])
  expect((await call('GET', ofAccount('/rate-lists'))).body.rateListTypes).toEqual(['z', 'y'])
  const { telecallerId } = (await call('POST', ofAccount('/telecallers'), { name: 'Meena' })).body
  const path = ofAccount(`/telecallers/${telecallerId}`)
  expect((await call('POST', `${path}/deactivate`)).body.active).toBe(false)
  expect((await call('POST', `${path}/activate`)).body.active).toBe(true)
  expect((await call('POST', ofAccount(`/telecallers/${newId(0)}/activate`))).status).toBe(404)
})
