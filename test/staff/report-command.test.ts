import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startTestApp, type TestApp } from '../support/app.ts'
import { done, openStaffWorld, PDF, type StaffWorld } from './staff-world.ts'

let app: TestApp
let world: StaffWorld

beforeAll(async () => {
  app = await startTestApp()
  world = await openStaffWorld(app)
})
afterAll(() => app.close())

async function run(...args: string[]): Promise<{ code: number | null; out: string; err: string }> {
  const env = {
    PATH: process.env.PATH ?? '',
    OPERATOR_URL: `http://127.0.0.1:${app.port}`,
    OPERATOR_KEY: world.staffKey,
  }
  const child = spawn(process.execPath, ['scripts/operator.ts', ...args, '--accountId', world.account.id], { env })
  const ended = once(child, 'close')
  const [out, err] = await Promise.all([text(child.stdout), text(child.stderr)])
  const [code] = await ended
  return { code, out, err }
}

test('the file of a report is sent from the command line', async () => {
  const { billId } = done(await world.post(`/bookings/${await world.createBooking()}/bill`))
  const { reportId } = done(await world.post(`/bills/${billId}/reports`))
  const file = join(app.dataDir, 'from-the-lab.pdf')
  writeFileSync(file, PDF)
  const { code, out } = await run('upload-report', '--reportId', reportId, '--file', file)
  expect([code, JSON.parse(out)]).toMatchObject([0, { reportId, status: 'uploaded' }])
  const signedOff = await run('sign-off-report', '--reportId', reportId)
  expect(JSON.parse(signedOff.out)).toMatchObject({ status: 'signed_off' })
  const missing = await run('amend-report', '--reportId', reportId)
  expect([missing.code, missing.err]).toEqual([2, expect.stringContaining('--file is required')])
  writeFileSync(file, 'no PDF')
  const refused = await run('amend-report', '--reportId', reportId, '--file', file)
  expect([refused.code, refused.err]).toEqual([1, expect.stringContaining('must begin with %PDF-')])
})
