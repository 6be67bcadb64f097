/** The mode of an account is switched while the body of a call is on its way. */
import { once } from 'node:events'
import { request, type IncomingMessage } from 'node:http'
import { json } from 'node:stream/consumers'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startTestApp, type TestApp } from '../support/app.ts'
import { buildAccount, buildLab, buildOperatorKey, subscribeBody } from '../support/builders.ts'

let app: TestApp

beforeAll(async () => {
  app = await startTestApp()
})
afterAll(() => app.close())

test('a webhook whose body comes after the switch is judged by the new mode', async () => {
  const account = await buildAccount(app, { mode: 'catch_all' })
  const lab = await buildLab(app, account)
  const key = await buildOperatorKey(app)
  const body = JSON.stringify(subscribeBody(lab))
  const headers = {
    authorization: `Bearer ${account.token}`,
    'content-type': 'application/json',
    'content-length': body.length,
  }
  const call = request({ host: '127.0.0.1', port: app.port, path: '/client/events/subscribe', method: 'POST', headers })
  call.write(body.slice(0, 10))
  const path = `/operator/accounts/${account.id}`
  const switched = await app.call('PATCH', path, { token: key, body: { mode: 'party_scoped' } })
  expect(switched.status).toBe(200)
  call.end(body.slice(10))
  const [answer] = (await once(call, 'response')) as [IncomingMessage]
  expect([answer.statusCode, await json(answer)]).toEqual([400, expect.objectContaining({ success: false })])
  expect(await app.database.knex('webhooks').where({ account_id: account.id })).toEqual([])
})
