/** How a contact is locked by its codes, and what becomes of a code when staff lift the lock. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startTestApp, type TestApp } from '../support/app.ts'
import { buildAccount, buildOperatorKey, buildPatient, newContact } from '../support/builders.ts'

let app: TestApp

beforeAll(async () => {
  app = await startTestApp()
})
afterAll(() => app.close())

/** A patient's contact, and what is asked about it. */
async function openContact() {
  const account = await buildAccount(app)
  const contact = newContact()
  await buildPatient(app, account, { contact })
  const key = await buildOperatorKey(app)
  const call = (step: string, body: object) =>
    app.call('POST', `/client/patient/${step}`, { token: account.token, body })
  const ask = () => call('getLoginOTP', { contact })
  const request = async () => {
    const { status, body } = await ask()
    await app.smsSender.settle()
    expect(status).toBe(200)
    return body.otpToken
  }
  const codes = () => app.sms.taken.filter(({ to }) => to === contact).map(({ text }) => text.slice(0, 6))
  const verify = async (otpToken: string, step = 0) => {
    const otp = String((Number(codes().at(-1)) + step) % 1_000_000).padStart(6, '0')
    return (await call('verifyLoginOTP', { otp, otpToken })).status
  }
  const lift = async () => {
    const path = `/operator/accounts/${account.id}/otp-lock/lift`
    expect((await app.call('POST', path, { token: key, body: { contact } })).status).toBe(200)
  }
  return { accountId: account.id, ask, request, codes, verify, lift }
}

test('the wrong tries of four codes that follow one another at once lock the contact', async () => {
  const { ask, request, codes, verify } = await openContact()
  for (let n = 0; n < 4; n++) {
    const otpToken = await request()
    for (let tries = 0; tries < 5; tries++) expect(await verify(otpToken, 1)).toBe(401)
  }
  expect(codes()).toHaveLength(4)
  const { status, headers } = await ask()
  expect([status, headers['retry-after']]).toEqual([429, '86400'])
})

test('a lifted lock leaves a code that has tries left, and another one is sent where it has none', async () => {
  const { request, codes, verify, lift } = await openContact()
  const first = await request()
  for (let n = 0; n < 5; n++) expect(await verify(first, 1)).toBe(401)
  await lift()
  const second = await request()
  expect(codes()).toHaveLength(2)
  expect(await verify(second, 1)).toBe(401)
  await lift()
  await request()
  expect(codes()).toHaveLength(2)
  expect(await verify(second)).toBe(200)
})

test('of a lock that was made before the clock was set back the day that it is told is true', async () => {
  const { accountId, ask, request, verify } = await openContact()
  const otpToken = await request()
  const { knex } = app.database
  const hour = 3_600_000
  for (const refused of [
    ask,
    async () => ({ status: await verify(otpToken), headers: {} as Record<string, unknown> }),
  ]) {
    const lockedUntil = new Date(app.clock.nowMs() + 30 * 24 * hour)
    await knex('otp_contacts').where({ account_id: accountId }).update({ locked_until: lockedUntil })
    expect((await refused()).status).toBe(429)
    const { status, headers } = await ask()
    expect([status, headers['retry-after']]).toEqual([429, '86400'])
  }
  const { locked_until: until } = await knex('otp_contacts').where({ account_id: accountId }).first('locked_until')
  expect(until).toEqual(new Date(app.clock.nowMs() + 24 * hour))
})
