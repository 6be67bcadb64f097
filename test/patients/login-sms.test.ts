/** What becomes of the text message that a one-time password goes out by. */
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { monotonicMs } from '../../src/clock.ts'
import { unseal } from '../../src/crypto.ts'
import { createLogger } from '../../src/logger.ts'
import { SmsSender } from '../../src/patients/sms-sender.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { buildAccount, buildPatient, newContact, type TestAccount } from '../support/builders.ts'
import { loginCalls } from '../support/login-calls.ts'

let app: TestApp
let account: TestAccount
let contact: string

const SECOND = 1000
const MINUTE = 60 * SECOND

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

test('an SMS is tried again while its code lives, under the same id, and its content is gone afterwards', async () => {
  app.sms.down = true
  const { otpToken } = (await requestOtp()).body
  app.sms.down = false
  await app.smsSender.sendDue()
  expect(texts()).toHaveLength(0)
  app.clock.advance(10 * SECOND)
  await Promise.all([app.smsSender.sendDue(), app.smsSender.sendDue()])
  expect(texts()).toHaveLength(1)
  const [row] = await app.database.knex('sms_messages').where({ account_id: account.id })
  expect(row).toMatchObject({ content: null, due_at: null, tries: 2, sent_at: app.clock.now() })
  expect(app.sms.taken.at(-1)!.id).toBe(row.id)
  expect((await verify(otpToken, lastCode())).status).toBe(200)
})

test('an SMS whose claim took so long that another process may claim it while the gateway answers is left to its next try', async () => {
  const { knex } = app.database
  const slow = ({ sql }: { sql: string }) => void (sql.startsWith('update `sms_messages` set `due_at`') && app.clock.advance(5 * SECOND)) // prettier-ignore
  knex.on('query', slow)
  await requestOtp()
  await app.smsSender.settle()
  knex.off('query', slow)
  expect(texts()).toHaveLength(0)
  app.clock.advance(6 * SECOND)
  await app.smsSender.sendDue()
  expect(texts()).toHaveLength(1)
})

test('a process that stops begins none of those that were left, however many there are', async () => {
  app.sms.down = true
  for (let n = 0; n < 3; n++) {
    contact = newContact()
    await buildPatient(app, account, { contact })
    await requestOtp()
  }
  app.clock.advance(10 * SECOND)
  const { database, clock, keys } = app
  let calls = 0
  let stopped: Promise<void> | undefined
  const gateway = {
    send: async () => {
      calls += 1
      stopped = sender.stop()
    },
  }
  const sender = new SmsSender({ knex: database.knex, clock, keys, logger: createLogger('api', 'silent'), gateway })
  await sender.sendDue()
  await stopped
  expect(calls).toBe(1)
  app.sms.down = false
  await app.smsSender.sendDue()
})

test('an SMS is begun at any moment of its spread, behind the answer, and a stop waits for those that are not begun', async () => {
  const { database, clock, keys } = app
  const begunAtMs: number[] = []
  const gateway = { send: async () => void begunAtMs.push(monotonicMs()) }
  const deps = { knex: database.knex, clock, keys, logger: createLogger('api', 'silent'), gateway }
  const sender = new SmsSender({ ...deps, spreadMs: 400 })
  app.sms.down = true
  for (let n = 0; n < 12; n++) {
    contact = newContact()
    await buildPatient(app, account, { contact })
    await requestOtp()
  }
  app.sms.down = false
  // As they are when they have just been written.
  await database.knex('sms_messages').whereNull('sent_at').update({ tries: 0 })
  const ids: string[] = await database.knex('sms_messages').whereNull('sent_at').whereNotNull('due_at').pluck('id')
  app.clock.advance(10 * SECOND)
  const startedAtMs = monotonicMs()
  for (const id of ids) sender.sendSoon(id)
  await sender.stop()
  expect(begunAtMs).toHaveLength(12)
  const delays = begunAtMs.map((ms) => ms - startedAtMs)
  // Twelve at random within 400 ms: all in one half of it once in some 2,000 times.
  expect(Math.max(...delays)).toBeGreaterThan(100)
  expect(Math.max(...delays) - Math.min(...delays)).toBeGreaterThan(60)
})

test('an SMS of a code that was made while the clock was ahead is given up', async () => {
  app.sms.down = true
  const ahead = 20 * 365 * 24 * 60 * MINUTE
  app.clock.advance(ahead)
  account = await buildAccount(app)
  contact = newContact()
  await buildPatient(app, account, { contact })
  await requestOtp()
  app.clock.advance(-ahead)
  await app.database.knex('sms_messages').whereNotNull('due_at').update({ due_at: app.clock.now() })
  app.sms.down = false
  await app.smsSender.sendDue()
  expect(texts()).toEqual([])
  expect(await app.database.knex('sms_messages').whereNotNull('due_at')).toEqual([])
})

test('an SMS is sent once by processes that all look at once, and none of them is the victim of a deadlock', async () => {
  for (let round = 0; round < 15; round++) {
    app.clock.advance(MINUTE)
    app.sms.down = true
    const contacts = Array.from({ length: 4 }, newContact)
    for (const one of contacts) await buildPatient(app, account, { contact: one })
    for (const one of contacts) await requestOtp(one)
    app.sms.down = false
    app.clock.advance(10 * SECOND)
    await Promise.all(Array.from({ length: 6 }, () => app.smsSender.sendDue()))
    for (const one of contacts) expect(texts(one)).toHaveLength(1)
  }
})

test('an SMS of a code that another one has replaced is not sent any more', async () => {
  for (const down of [true, true, false]) {
    app.sms.down = down
    app.clock.advance(31 * SECOND)
    await requestOtp()
  }
  await app.smsSender.sendDue()
  expect(texts()).toHaveLength(1)
})

test('an SMS that a gateway has sent and says it has not goes to nobody again once its code was used, or serves no more', async () => {
  for (const isRight of [true, false]) {
    app.clock.advance(MINUTE)
    app.sms.down = true
    const { otpToken } = (await requestOtp()).body
    await app.smsSender.sendDue()
    const [row] = await app.database.knex('sms_messages').where({ account_id: account.id }).orderBy('id', 'desc')
    const { text } = JSON.parse(unseal(app.keys, row.content, `sms:${row.id}`).toString('utf8'))
    const code = /^\d{6}/.exec(text)![0]
    const wrong = code === '000000' ? '000001' : '000000'
    for (const otp of isRight ? [code] : [wrong, wrong, wrong, wrong, wrong]) await verify(otpToken, otp)
    app.sms.down = false
    app.clock.advance(10 * SECOND)
    await app.smsSender.sendDue()
    expect(texts()).toHaveLength(0)
    expect(await app.database.knex('sms_messages').where({ id: row.id }).first()).toMatchObject({ content: null })
  }
})

test('an SMS that could not be sent in the life of its code is given up, and its content is gone', async () => {
  app.sms.down = true
  await requestOtp()
  app.sms.down = false
  app.clock.advance(5 * MINUTE)
  await app.smsSender.sendDue()
  const [row] = await app.database.knex('sms_messages').where({ account_id: account.id })
  expect([row.content, row.due_at, row.sent_at, texts()]).toEqual([null, null, null, []])
})
