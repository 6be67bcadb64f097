/**
 * What is committed between two statements of one request: neither is it answered with a half of it, nor with a fault of ours.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startDatabaseProxy, type DatabaseProxy } from '../scripts/crash/database-proxy.ts'
import { startTestApp, type TestApp } from './support/app.ts'
import {
  buildAccount,
  buildLab,
  buildOperatorKey,
  buildPackage,
  buildTelecaller,
  buildTest,
  newContact,
} from './support/builders.ts'
import { whileAsked } from './support/while-asked.ts'

let app: TestApp
let proxy: DatabaseProxy
/** Its answers from the database can be late. */
let slowApp: TestApp

beforeAll(async () => {
  app = await startTestApp()
  proxy = await startDatabaseProxy(app.mysqlUrl)
  slowApp = await startTestApp({ mysqlUrl: proxy.mysqlUrl })
})
afterAll(async () => {
  await slowApp.close()
  proxy.close()
  await app.close()
})

test('a package that comes while the list is read has its tests, or is not listed', async () => {
  const account = await buildAccount(app)
  const lab = await buildLab(app, account)
  const cbc = await buildTest(app, lab)
  const list = () => slowApp.call('GET', '/client/crm/packages', { token: account.token, query: { branchID: lab.id } })
  const first = await whileAsked(proxy, /package_tests/, list, () => buildPackage(app, lab, [cbc]))
  const withoutTests = (body: any) => body.packages.filter(({ tests }: { tests: unknown[] }) => tests.length === 0)
  expect([first.status, withoutTests(first.body)]).toEqual([200, []])
  const { body } = await list()
  expect([body.packages.length, withoutTests(body)]).toEqual([1, []])
})

test("a staff's lead is made while the account gets its first telecaller", async () => {
  const account = await buildAccount(app)
  const lab = await buildLab(app, account)
  const token = await buildOperatorKey(app, { role: 'staff', accountId: account.id })
  const body = { labID: lab.id, first_name: 'Asha', contact: newContact() }
  let telecallerId: string | undefined
  const made = await whileAsked(
    proxy,
    /telecaller_turns .*FOR UPDATE/s,
    () => slowApp.call('POST', `/operator/accounts/${account.id}/entries`, { token, body }),
    async () => (telecallerId = (await buildTelecaller(app, account)).id),
  )
  expect([made.status, made.body.assignedTo]).toEqual([201, telecallerId])
})
