/**
 * A connection to the database that ends in the middle of a transaction: its request is answered 503, and nothing of it is done.
 */
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { COMMIT } from '../../db/batch.ts'
import { isConnectionFault, isRetriable } from '../../db/connection.ts'
import { startDatabaseProxy, type DatabaseProxy } from '../../scripts/crash/database-proxy.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { buildAccount, buildLab, buildOperatorKey, newContact, subscribeBody } from '../support/builders.ts'
import { whileAsked } from '../support/while-asked.ts'

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

/** Ends every connection while the first such statement has no answer. */
const cutAt = (statement: RegExp, call: () => ReturnType<TestApp['call']>) =>
  whileAsked(proxy, statement, call, () => proxy.reset())

test('is 503 with Retry-After, whatever statement it was', async () => {
  const account = await buildAccount(app)
  const lab = await buildLab(app, account)
  const key = await buildOperatorKey(app)
  const { token } = account
  const subscribe = () => cutApp.call('POST', '/client/events/subscribe', { token, body: subscribeBody(lab) })
  const cut = [
    await cutAt(/insert into `webhooks`/, subscribe),
    await cutAt(/insert into `webhook_secrets`/, subscribe),
    await cutAt(/otp_codes/, () =>
      cutApp.call('POST', '/client/patient/getLoginOTP', { token, body: { contact: newContact() } }),
    ),
    await cutAt(/insert into `patients`/, () =>
      cutApp.call('POST', `/operator/accounts/${account.id}/patients`, {
        token: key,
        body: { name: 'Asha', contact: newContact() },
      }),
    ),
  ]
  expect(cut.map(({ status, headers }) => [status, headers['retry-after']])).toEqual(cut.map(() => [503, '1']))
  const refused = cutApp.logs().filter((line) => line.event === 'request.completed' && line.status === 503)
  expect(refused.map(({ code, reason }) => [code, typeof reason])).toEqual(cut.map(() => ['unavailable', 'string']))
  // The server may still be at the statement whose connection has ended.
  await vi.waitFor(async () => {
    for (const table of ['webhooks', 'patients', 'otp_codes']) expect(await app.database.knex(table)).toEqual([])
  })
})

test('between two statements is the same fault', async () => {
  const { database } = cutApp
  proxy.delayOf = () => 0
  const pause = () => new Promise((resolve) => setTimeout(resolve, 50))
  const faults = [
    await database.knex
      .transaction(async (trx) => {
        await trx.raw('SELECT 1')
        proxy.reset()
        await pause()
        await trx.raw('SELECT 1')
      })
      .catch((error) => error),
    await database.batch
      .transaction(async (send) => {
        await send([{ sql: 'SELECT 1' }])
        proxy.reset()
        await pause()
        await send([COMMIT])
      })
      .catch((error) => error),
  ]
  expect(faults.map(isConnectionFault)).toEqual([true, true])
})

test('what a server says of its own state is its fault, and a COMMIT that lost to another one is run again', async () => {
  const faultOf = (errno: number) =>
    app.database.knex
      .raw(`SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = ${errno}, MESSAGE_TEXT = 'as the server says'`)
      .catch((error) => error)
  const states = [1045, 1053, 1135, 1160, 1161, 1184, 1206, 1637, 1969, 3024, 3100, 3168]
  const faults = await Promise.all(states.map(faultOf))
  expect(faults.map((fault) => [fault.errno, isConnectionFault(fault)])).toEqual(states.map((errno) => [errno, true]))
  expect(isRetriable(await faultOf(3101))).toBe(true)
})
