/** Whoever follows a link is told within five seconds that the database is too slow, as with every other call. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startDatabaseProxy, type DatabaseProxy } from '../../scripts/crash/database-proxy.ts'
import { monotonicMs } from '../../src/clock.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { done, openStaffWorld, uploadedReport, type StaffWorld } from './staff-world.ts'

let app: TestApp
let world: StaffWorld
let proxy: DatabaseProxy
/** Its answers from the database are late. */
let slowApp: TestApp

beforeAll(async () => {
  app = await startTestApp()
  world = await openStaffWorld(app)
  proxy = await startDatabaseProxy(app.mysqlUrl)
  slowApp = await startTestApp({ mysqlUrl: proxy.mysqlUrl })
})
afterAll(async () => {
  await slowApp.close()
  proxy.close()
  await app.close()
})

async function follow(link: string, lateMs: number) {
  const url = new URL(link)
  url.port = String(slowApp.port)
  // What is asked for the link: a connection's own first words are not.
  proxy.delayOf = (sql) => (/^select/i.test(sql) ? lateMs : 0)
  const startedAtMs = monotonicMs()
  const answer = await fetch(url)
  const ms = monotonicMs() - startedAtMs
  proxy.delayOf = () => 0
  return { answer, ms }
}

test('a quotation whose statements are slow each, and a report whose one is', { timeout: 30_000 }, async () => {
  const leadId = await world.createEntry({ first_name: 'Asha' })
  const { eventId } = done(await world.post(`/entries/${leadId}/send-quotation`))
  const body = await app.database
    .knex('event_bodies')
    .where({ event_id: eventId.replace('evt_', '') })
    .first('body')
  const quotation = JSON.parse(body.body.toString()).data.message.attachmentUrl
  const { reportId } = await uploadedReport(world)
  done(await world.post(`/reports/${reportId}/sign-off`))
  const { reportUrl } = done(await world.get(`/reports/${reportId}`))
  expect((await follow(quotation, 0)).answer.status).toBe(200)
  // Its file is in the other one's folder.
  expect((await follow(reportUrl, 0)).answer.status).toBe(404)
  for (const [link, lateMs] of [
    [quotation, 1500],
    [reportUrl, 6000],
  ]) {
    const { answer, ms } = await follow(link, lateMs)
    expect([answer.status, ((await answer.json()) as any).error.code]).toEqual([503, 'unavailable'])
    expect(answer.headers.get('retry-after')).toMatch(/^\d+$/)
    expect(ms).toBeGreaterThan(3900)
    expect(ms).toBeLessThan(5500)
  }
  expect((await follow(quotation, 0)).answer.status).toBe(200)
})
