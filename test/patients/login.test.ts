import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { newId } from '../../src/ids.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { buildAccount, buildPatient, newContact, type TestAccount } from '../support/builders.ts'
import { loginCalls } from '../support/login-calls.ts'

let app: TestApp
let account: TestAccount
/** Of a patient, and no other test has used it. */
let contact: string

const SECOND = 1000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE

beforeAll(async () => {
  app = await startTestApp()
})
afterAll(() => app.close())
beforeEach(async () => {
  account = await buildAccount(app)
  contact = newContact()
  await buildPatient(app, account, { contact })
})

const { requestOtp, verify, texts, lastCode } = loginCalls(() => ({ app, account, contact }))
const wrong = (code: string) => String((Number(code) + 1) % 1_000_000).padStart(6, '0')

/** A code, and five wrong tries of it. */
async function failFiveTimes(): Promise<void> {
  const { body } = await requestOtp()
  for (let n = 0; n < 5; n++) expect((await verify(body.otpToken, wrong(lastCode()))).status).toBe(401)
}

describe('a patient', () => {
  test('gets six digits by SMS and logs in with them once', async () => {
    const { status, body } = await requestOtp()
    expect([status, Object.keys(body)]).toEqual([200, ['otpToken']])
    expect(texts()).toHaveLength(1)
    const code = lastCode()
    const login = await verify(body.otpToken, code)
    expect([login.status, Object.keys(login.body)]).toEqual([200, ['patientToken']])
    expect((await verify(body.otpToken, code)).status).toBe(401)
  })

  test.each(['', '987654321', '98765432101', '+919876543210', '98765 43210', '9876543210\n', '९८७६५४३२१०', 'abcdefghij', 9876543210, null])(
    'is 400 with a contact that is not ten ASCII digits: %j',
    async (number) => {
      expect((await requestOtp(number)).status).toBe(400)
    },
  ) // prettier-ignore

  test('who asks again within 30 s of an unused code gets another token for it and no SMS; both tokens serve', async () => {
    const first = (await requestOtp()).body.otpToken
    app.clock.advance(29_999)
    const second = (await requestOtp()).body.otpToken
    expect([second === first, texts().length]).toEqual([false, 1])
    expect((await verify(second, wrong(lastCode()))).status).toBe(401)
    expect((await verify(first, lastCode())).status).toBe(200)
    expect((await verify(second, lastCode())).status).toBe(401)
  })

  test('who asks again after 30 s gets a new code, and the one before it is dead', async () => {
    const first = (await requestOtp()).body.otpToken
    const firstCode = lastCode()
    app.clock.advance(30_000)
    const second = (await requestOtp()).body.otpToken
    expect(texts()).toHaveLength(2)
    expect((await verify(first, firstCode)).status).toBe(401)
    expect((await verify(second, lastCode())).status).toBe(200)
  })

  test('who has used a code gets the next at once', async () => {
    const { body } = await requestOtp()
    expect((await verify(body.otpToken, lastCode())).status).toBe(200)
    const next = await requestOtp()
    expect([next.status, texts().length]).toEqual([200, 2])
    expect((await verify(next.body.otpToken, lastCode())).status).toBe(200)
  })
})

describe('a code', () => {
  test('serves until just before 5 minutes are over', async () => {
    const early = (await requestOtp()).body.otpToken
    app.clock.advance(5 * MINUTE - 1)
    expect((await verify(early, lastCode())).status).toBe(200)
    const late = (await requestOtp()).body.otpToken
    app.clock.advance(5 * MINUTE)
    expect((await verify(late, lastCode())).status).toBe(401)
  })

  test('has five tries: the right digits do not serve as a sixth', async () => {
    const { body } = await requestOtp()
    for (let n = 0; n < 5; n++) expect((await verify(body.otpToken, wrong(lastCode()))).status).toBe(401)
    expect((await verify(body.otpToken, lastCode())).status).toBe(401)
    // It serves no more, so the next one is sent at once.
    const next = await requestOtp()
    expect(texts()).toHaveLength(2)
    for (let n = 0; n < 4; n++) await verify(next.body.otpToken, wrong(lastCode()))
    expect((await verify(next.body.otpToken, lastCode())).status).toBe(200)
  })

  test('that is wrong, used, expired, malformed, unknown or of another account gets one and the same 401', async () => {
    const other = await buildAccount(app)
    await buildPatient(app, other, { contact })
    const used = (await requestOtp()).body.otpToken
    const usedCode = lastCode()
    await verify(used, usedCode)
    const { otpToken } = (await requestOtp()).body
    const answers = [
      await verify(used, usedCode),
      await verify(otpToken, wrong(lastCode())),
      await verify(otpToken, ''),
      await verify(otpToken, `${lastCode()} `),
      await verify('', lastCode()),
      await verify(newId(0), lastCode()),
      await verify(`${otpToken}x`, lastCode()),
      await verify(otpToken, lastCode(), other),
    ]
    app.clock.advance(6 * MINUTE)
    answers.push(await verify(otpToken, lastCode()))
    const bodies = answers.map(({ status, body }) => [status, body.message, body.error])
    const invalid = [401, 'Unauthorized', { details: 'invalid OTP', code: 'invalid_otp' }]
    expect(bodies).toEqual(answers.map(() => invalid))
  })

  test('tried by another account loses no try', async () => {
    const other = await buildAccount(app)
    const { otpToken } = (await requestOtp()).body
    for (let n = 0; n < 6; n++) await verify(otpToken, wrong(lastCode()), other)
    expect((await verify(otpToken, lastCode())).status).toBe(200)
  })

  test('verified 50 times at once with the right digits logs in exactly once, and the contact is not locked', async () => {
    const { otpToken } = (await requestOtp()).body
    const code = lastCode()
    const answers = await Promise.all(Array.from({ length: 50 }, () => verify(otpToken, code)))
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1)
    expect(answers.filter(({ status }) => status === 401)).toHaveLength(49)
    expect((await requestOtp()).status).toBe(200)
  })

  test('tried 50 times at once with wrong digits counts five tries, not more', async () => {
    const { otpToken } = (await requestOtp()).body
    const answers = await Promise.all(Array.from({ length: 50 }, () => verify(otpToken, wrong(lastCode()))))
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([401]))
    const [row] = await app.database.knex('otp_contacts').where({ account_id: account.id })
    expect(row.failures_in_row).toBe(5)
    expect((await verify(otpToken, lastCode())).status).toBe(401)
  })

  test('asked for 20 times at once is one code and one SMS, and every token stands for it', async () => {
    const answers = await Promise.all(Array.from({ length: 20 }, () => requestOtp()))
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]))
    expect(texts()).toHaveLength(1)
    expect((await verify(answers[13]!.body.otpToken, lastCode())).status).toBe(200)
  })
})

describe('too many', () => {
  test('codes in 10 minutes are 429 until the first of five is 10 minutes old', async () => {
    for (let n = 0; n < 5; n++) {
      expect((await requestOtp()).status).toBe(200)
      app.clock.advance(30 * SECOND)
    }
    const refused = await requestOtp()
    expect([refused.status, refused.headers['retry-after'], refused.body.error.code]).toEqual([429, '450', 'otp_limited'])
    expect(texts()).toHaveLength(5)
    app.clock.advance(450 * SECOND - 1)
    expect((await requestOtp()).status).toBe(429)
    app.clock.advance(1)
    expect((await requestOtp()).status).toBe(200)
    expect((await requestOtp(newContact())).status).toBe(200)
  }) // prettier-ignore

  test('codes in a day are 429 from the eleventh on', async () => {
    for (let n = 0; n < 10; n++) {
      expect((await requestOtp()).status).toBe(200)
      app.clock.advance(10 * MINUTE)
    }
    const refused = await requestOtp()
    expect([refused.status, refused.headers['retry-after']]).toEqual([429, String((24 * HOUR - 100 * MINUTE) / 1000)])
    app.clock.advance(24 * HOUR - 100 * MINUTE)
    expect((await requestOtp()).status).toBe(200)
  })

  test('failures in a row, over four codes, lock the contact for 24 hours, also for the right digits', async () => {
    for (let n = 0; n < 4; n++) {
      await failFiveTimes()
      app.clock.advance(30 * SECOND)
    }
    const refused = await requestOtp()
    expect([refused.status, refused.headers['retry-after']]).toEqual([429, String(24 * 3600 - 30)])
    app.clock.advance(24 * HOUR - 30 * SECOND - 1)
    expect((await requestOtp()).status).toBe(429)
    app.clock.advance(1)
    const open = await requestOtp()
    expect((await verify(open.body.otpToken, lastCode())).status).toBe(200)
  })

  test('failures lock a contact in the middle of a code, and its right digits get 429', async () => {
    await app.database.knex('otp_contacts').where({ account_id: account.id }).delete()
    const { otpToken } = (await requestOtp()).body
    await app.database.knex('otp_contacts').where({ account_id: account.id }).update({ failures_in_row: 19 })
    expect((await verify(otpToken, wrong(lastCode()))).status).toBe(401)
    const locked = await verify(otpToken, lastCode())
    expect([locked.status, locked.headers['retry-after']]).toEqual([429, '86400'])
  })

  test('failures without a login leave one try a day after the first lock: 50 guesses in 30 days', async () => {
    const end = app.clock.nowMs() + 30 * 24 * HOUR
    let guesses = 0
    let logins = 0
    // Whoever guesses asks for the next code as soon as there is one to be had, and tries it for as long as it is worth it.
    while (app.clock.nowMs() < end) {
      const { status, body, headers } = await requestOtp()
      const tries = status === 200 ? [1, 2, 3, 4, 5, 6] : []
      for (const _ of tries) {
        const answer = await verify(body.otpToken, wrong(lastCode()))
        if (answer.status === 200) logins++
        if (answer.status === 401) guesses++
        if (answer.status === 429) break
      }
      app.clock.advance(status === 429 ? Number(headers['retry-after']) * SECOND : 30 * SECOND)
    }
    // The sixth of a code is told the same, and tries nothing.
    const [{ failures_in_row: counted }] = await app.database.knex('otp_contacts').where({ account_id: account.id })
    expect([logins, counted <= 50, guesses <= 100]).toEqual([0, true, true])
  })

  test('failures are forgotten by a login', async () => {
    for (let n = 0; n < 3; n++) {
      await failFiveTimes()
      app.clock.advance(30 * SECOND)
    }
    const { body } = await requestOtp()
    expect((await verify(body.otpToken, lastCode())).status).toBe(200)
    const [row] = await app.database.knex('otp_contacts').where({ account_id: account.id })
    expect([row.failures_in_row, row.locked_until]).toEqual([0, null])
  })
})

describe('a number that no patient has', () => {
  test('gets the same answers and limits, the same rows, and no SMS', async () => {
    const nobody = newContact()
    for (let n = 0; n < 5; n++) {
      const { status, body } = await requestOtp(nobody)
      expect([status, Object.keys(body)]).toEqual([200, ['otpToken']])
      expect((await verify(body.otpToken, '000000')).body.error.details).toBe('invalid OTP')
      app.clock.advance(30 * SECOND)
    }
    expect([(await requestOtp(nobody)).status, texts(nobody)]).toEqual([429, []])
    const rows = await app.database.knex('sms_messages').where({ account_id: account.id })
    expect(rows.map(({ content, due_at }) => [content, due_at])).toEqual(rows.map(() => [null, null]))
    expect(rows).toHaveLength(5)
  })

  test('of this account is no patient for being one of another', async () => {
    const other = await buildAccount(app)
    expect((await requestOtp(contact, other)).status).toBe(200)
    expect(texts()).toEqual([])
  })
})

test('no code, contact or token stands in a log line, nor a code or a contact in any row of the login', async () => {
  const { otpToken } = (await requestOtp()).body
  app.sms.down = true
  app.clock.advance(30 * SECOND)
  const again = (await requestOtp()).body.otpToken
  app.sms.down = false
  app.clock.advance(10 * SECOND)
  const { knex } = app.database
  const tables = ['otp_contacts', 'otp_codes', 'otp_tokens', 'sms_messages']
  const stored = await Promise.all(tables.map((table) => knex(table)))
  const bytes = Buffer.concat(
    stored.flat().flatMap((row) => Object.values(row).map((value) => (value instanceof Buffer ? value : Buffer.from(String(value))))),
  ).toString('latin1')
  await app.smsSender.sendDue()
  const { patientToken } = (await verify(again, lastCode())).body
  const logged = JSON.stringify(app.logs())
  for (const secret of [contact, otpToken, again, patientToken, ...texts()]) expect(logged).not.toContain(secret)
  for (const line of app.logs()) expect(Object.values(line).map(String)).not.toContain(lastCode())
  for (const secret of [contact, otpToken, again, ...texts()]) expect(bytes).not.toContain(secret)
  expect(app.logs().map(({ event }) => event)).toContain('sms.not_taken')
}) // prettier-ignore

test('no attempt of this file was answered with a fault of ours', () => {
  expect(app.logs().filter(({ status }) => Number(status) >= 500)).toEqual([])
})
