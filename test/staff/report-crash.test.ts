/**
 * A file and its row never part: an API process is killed between the two, and while a file is coming in.
 */
import { copyFileSync, readdirSync, utimesSync } from 'node:fs'
import { request } from 'node:http'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { newId } from '../../src/ids.ts'
import { reportFolder } from '../../src/reports/report-store.ts'
import { startApiProcess, type ApiProcess } from '../support/api-process.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { done, openStaffWorld, PDF, uploadedReport, type StaffWorld } from './staff-world.ts'

let app: TestApp
let world: StaffWorld
let api: ApiProcess | undefined

beforeAll(async () => {
  app = await startTestApp()
  world = await openStaffWorld(app)
})
afterAll(async () => {
  await api?.kill()
  await app.close()
})

const startApi = () =>
  startApiProcess({
    mysqlUrl: app.mysqlUrl,
    dataDir: app.dataDir,
    secretsKey: Buffer.alloc(32, 7).toString('base64'),
  })
const files = () => readdirSync(reportFolder(app.dataDir))

/** Begins an upload; it is never answered. */
function upload(baseUrl: string, reportId: string, isWhole: boolean): void {
  const outgoing = request(`${baseUrl}/operator/accounts/${world.account.id}/reports/${reportId}/upload`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${world.staffKey}`,
      'content-type': 'application/pdf',
      'content-length': isWhole ? PDF.length : PDF.length + 1,
    },
  })
  outgoing.on('error', () => {})
  outgoing.write(PDF)
  if (isWhole) outgoing.end()
}

async function draft(): Promise<{ billId: string; reportId: string }> {
  const { billId } = done(await world.post(`/bookings/${await world.createBooking()}/bill`))
  return { billId, reportId: done(await world.post(`/bills/${billId}/reports`)).reportId }
}

test('killed between the file and its row, or in the middle of a file, it leaves files that no row speaks of, which the next start removes', async () => {
  const kept = await uploadedReport(world)
  const { billId, reportId } = await draft()
  const before = files()
  api = await startApi()
  const { knex } = app.database
  await knex.transaction(async (trx) => {
    // Under this lock the row waits, with its file on the disk.
    await trx('bills').where({ id: billId }).forUpdate().first('id')
    upload(api!.baseUrl, reportId, true)
    await expect.poll(() => files().filter((name) => name.endsWith('.pdf')).length, { timeout: 10_000 }).toBe(2)
    upload(api!.baseUrl, reportId, false)
    await expect.poll(() => files().length, { timeout: 10_000 }).toBe(before.length + 2)
    await api!.kill()
  })
  expect(done(await world.get(`/reports/${reportId}`))).toMatchObject({ status: 'draft', version: 1 })

  const orphans = files().filter((name) => !before.includes(name))
  expect(orphans.map((name) => name.replace(/^[^.]+/, '')).sort()).toEqual(['.pdf', '.pdf.part'])
  // The same as they are two hours later; the young ones stay, since a row may be on its way.
  const [[row]] = await knex.raw('SELECT UNIX_TIMESTAMP(UTC_TIMESTAMP(3)) * 1000 AS now')
  for (const name of orphans) {
    const older = name.replace(/^[^.]+/, newId(Number(row.now) - 7_200_000))
    const path = join(reportFolder(app.dataDir), older)
    copyFileSync(join(reportFolder(app.dataDir), name), path)
    utimesSync(path, Date.now() / 1000 - 7200, Date.now() / 1000 - 7200)
  }
  api = await startApi()
  await expect.poll(() => files().sort(), { timeout: 10_000 }).toEqual([...before, ...orphans].sort())
  done(await world.putPdf(`/reports/${reportId}/upload`))
  expect(done(await world.get(`/reports/${kept.reportId}`)).status).toBe('uploaded')
}, 60_000)
