/**
 * A fault behind the COMMIT: what is done is not told to be undone, and what has gone out does not go out again.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { sendMails } from '../../daemon/jobs/send-mails.ts'
import { sendMessages } from '../../daemon/jobs/send-messages.ts'
import { COMMIT } from '../../db/batch.ts'
import { startDatabaseProxy, type DatabaseProxy } from '../../scripts/crash/database-proxy.ts'
import type { Clock } from '../../src/clock.ts'
import { newId, publicEventId } from '../../src/ids.ts'
import { createLogger } from '../../src/logger.ts'
import { insertMailStatement } from '../../src/mails/mails-repository.ts'
import { SmsSender } from '../../src/patients/sms-sender.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import {
  buildAccount,
  buildLab,
  buildOperatorKey,
  buildPatient,
  subscribeBody,
  type TestAccount,
} from '../support/builders.ts'
import { buildEnded, buildEvent } from '../support/logged-deliveries.ts'

/** Longer than a statement waits for a lock, shorter than two do. */
const HELD_MS = 1500

let app: TestApp
let proxy: DatabaseProxy
/** By way of the proxy. */
let cutApp: TestApp

beforeAll(async () => {
  app = await startTestApp()
  proxy = await startDatabaseProxy(app.mysqlUrl)
  cutApp = await startTestApp({ mysqlUrl: proxy.mysqlUrl })
})
afterAll(async () => {
  await cutApp.close()
  proxy.close()
  await app.close()
})

const knex = () => app.database.knex

async function buildExhausted(account: TestAccount) {
  const lab = await buildLab(app, account)
  const { token } = account
  const { body } = await app.call('POST', '/client/events/subscribe', { token, body: subscribeBody(lab) })
  const webhookId: string = body.data._id
  const eventId = await buildEvent(app.database, { accountId: account.id, labId: lab.id, atMs: app.clock.nowMs() })
  await buildEnded(knex(), webhookId, eventId, 'exhausted')
  return { lab, webhookId, eventId, publicId: publicEventId(eventId) }
}

test.each(['client', 'operator'])('a delivery that is not sent again is not queued either (%s)', async (contract) => {
  const account = await buildAccount(app)
  const { lab, webhookId, eventId, publicId } = await buildExhausted(account)
  const calls: Record<string, () => ReturnType<TestApp['call']>> = {
    client: () =>
      cutApp.call('POST', `/client/events/deliveries/${webhookId}/${publicId}/redeliver`, {
        token: account.token,
        query: { labID: lab.id },
        body: {},
      }),
    operator: async () =>
      cutApp.call('POST', `/operator/accounts/${account.id}/deliveries/${webhookId}/${publicId}/redeliver`, {
        token: await buildOperatorKey(app),
        body: {},
      }),
  }
  // The last of what the answer is made of.
  proxy.arm({ statement: /select `body` from `event_bodies`/, when: 'before' }, (cut) => cut())
  expect((await calls[contract]!()).status).toBe(503)
  expect(await knex()('delivery_queue').where({ event_id: eventId })).toEqual([])
  const again = await calls[contract]!()
  expect(again.status).toBe(200)
  expect(await knex()('delivery_queue').where({ event_id: eventId })).toHaveLength(1)
})

test('an erasure that is ordered is answered so, however its first steps end', async () => {
  const account = await buildAccount(app)
  const patient = await buildPatient(app, account)
  const token = await buildOperatorKey(app)
  proxy.arm({ statement: /select \* from `erasures` where `account_id`/, when: 'before' }, (cut) => cut())
  const body = { patientId: patient.id }
  const answer = await cutApp.call('POST', `/operator/accounts/${account.id}/erasures`, { token, body })
  expect(answer.status).toBe(201)
  const rows = await knex()('erasures').where({ account_id: account.id })
  expect(rows.map(({ id }) => id)).toEqual([answer.body.erasureId])
})

/** The connections break while the row is marked, twice. */
function breakAtMarks(table: string): void {
  const statement = new RegExp(`update \`${table}\` set \`due_at\` = NULL, \`sent_at\``)
  const again = (left: number) =>
    proxy.arm({ statement, when: 'before' }, (cut) => {
      cut()
      if (left > 0) again(left - 1)
    })
  again(1)
}

/** Somebody is in the way of the row, for a moment. */
async function hold(table: string, key: string, id: string): Promise<void> {
  const trx = await knex().transaction()
  await trx(table)
    .where({ [key]: id })
    .forUpdate()
    .first(key)
  setTimeout(() => void trx.rollback(), HELD_MS)
}

async function buildMail(): Promise<string> {
  const account = await buildAccount(app)
  const lab = await buildLab(app, account)
  const { body } = await app.call('POST', '/client/events/subscribe', {
    token: account.token,
    body: subscribeBody(lab),
  })
  const now = app.clock.now()
  const id = newId(now.getTime())
  const health = { firstFailureAt: now, failedAttempts: 6, lastError: 'HTTP status 502', warnedAt: null }
  const mail = insertMailStatement(id, 'warning', body.data._id, health, now)
  await app.database.batch.transaction((send) => send([mail, COMMIT]))
  return id
}

/** @returns its number */
async function buildSms(): Promise<string> {
  const account = await buildAccount(app)
  const { contact } = await buildPatient(app, account)
  app.sms.down = true
  await app.call('POST', '/client/patient/getLoginOTP', { token: account.token, body: { contact } })
  await app.smsSender.settle()
  app.clock.advance(10_000)
  return (await knex()('sms_messages').where({ account_id: account.id }).first('id')).id
}

async function buildMessage(): Promise<string> {
  const account = await buildAccount(app)
  const lab = await buildLab(app, account)
  const body = {
    labID: lab.id,
    type: 'quotation.send',
    recipient: { contact: '9812345670', name: 'Asha' },
    template: 'camp',
    text: 'A camp near you',
  }
  const token = await buildOperatorKey(app)
  const answer = await app.call('POST', `/operator/accounts/${account.id}/messages`, { token, body })
  const eventId = answer.body.eventId.slice(publicEventId('').length)
  await knex()('unrouted_events').where({ event_id: eventId }).delete()
  await knex()('messages').where({ event_id: eventId }).update({ state: 'normal', due_at: app.clock.now() })
  return eventId
}

const log = createLogger('daemon', 'silent')
const clock = { now: () => app.clock.now(), nowMs: () => app.clock.nowMs() } as Clock

/** Each is marked by way of the proxy. */
const SENDERS = {
  mails: {
    build: buildMail,
    run: (took: () => Promise<void>) =>
      sendMails({ ...{ database: cutApp.database, clock, log, from: 'lab@example.com' }, transport: { send: took, close: () => {} } }).run(),
  },
  sms_messages: {
    build: buildSms,
    run: (took: () => Promise<void>) =>
      new SmsSender({ ...{ knex: cutApp.database.knex, clock, keys: app.keys, logger: log }, gateway: { send: took } }).sendDue(),
  },
  messages: {
    build: buildMessage,
    run: (took: () => Promise<void>) =>
      sendMessages({ ...{ database: cutApp.database, clock, log }, gateway: { send: took } }).run(),
  },
} // prettier-ignore

test.each(Object.entries(SENDERS))(
  'what has gone out is marked, whoever holds its row and whatever becomes of the connection (%s)',
  async (table, { build, run }) => {
    const key = table === 'messages' ? 'event_id' : 'id'
    let taken = 0
    const marked = async (inTheWay: (id: string) => Promise<void> | void) => {
      const id = await build()
      await run(async () => {
        taken += 1
        await inTheWay(id)
      })
      return knex()(table)
        .where({ [key]: id })
        .first('due_at', 'sent_at')
    }
    const mark = () => ({ due_at: null, sent_at: app.clock.now() })
    expect(await marked((id) => hold(table, key, id))).toEqual(mark())
    expect(await marked(() => breakAtMarks(table))).toEqual(mark())
    expect(taken).toBe(2)
  },
)
