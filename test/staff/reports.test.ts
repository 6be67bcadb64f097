import { readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { newId } from '../../src/ids.ts'
import { reportFolder } from '../../src/reports/report-store.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { buildPackage, buildTest, newContact } from '../support/builders.ts'
import { done, openStaffWorld, PDF, uploadedReport, type StaffWorld } from './staff-world.ts'

const MAX_BYTES = 64 * 1024

let app: TestApp
let world: StaffWorld

beforeAll(async () => {
  app = await startTestApp({ reportMaxBytes: MAX_BYTES })
  world = await openStaffWorld(app)
})
afterAll(() => app.close())

const files = () => readdirSync(reportFolder(app.dataDir))

async function draft(): Promise<string> {
  const leadId = await world.createBooking()
  const { billId } = done(await world.post(`/bookings/${leadId}/bill`))
  return done(await world.post(`/bills/${billId}/reports`, {})).reportId
}

describe('a report', () => {
  test('is a draft, gets its file, is signed off and amended: each with its version, the last two with an event', async () => {
    const { reportId, billId } = await uploadedReport(world)
    expect(done(await world.get(`/reports/${reportId}`))).toMatchObject({ status: 'uploaded', version: 2 })
    app.clock.advance(60_000)
    const signedOff = done(await world.post(`/reports/${reportId}/sign-off`))
    const signedOffAt = app.clock.now().toISOString()
    expect(signedOff).toMatchObject({ status: 'signed_off', version: 3, amended: false, reportDate: signedOffAt })
    app.clock.advance(60_000)
    const other = Buffer.concat([PDF, Buffer.from('% second\n')])
    const amended = done(await world.putPdf(`/reports/${reportId}/amend`, other))
    expect(amended).toMatchObject({ status: 'signed_off', version: 4, amended: true })
    const [first, second] = await world.eventsOf(reportId)
    expect([first.type, first.timestamp, first.data.report.amended]).toEqual(['report.completed', signedOffAt, false])
    expect(first.data.report).toMatchObject({ reportId, billId, version: 3, labName: world.lab.name })
    expect(second.data.report).toMatchObject({ version: 4, amended: true, reportDate: app.clock.now().toISOString() })
    expect(await fetchFile(second.data.report.reportUrl)).toMatchObject({ status: 200, body: other })
    const kept = await app.database.knex('report_files').where({ report_id: reportId })
    expect(kept).toHaveLength(2)
  })

  test('carries the integratorID of its booking, and so does the bill that it completes', async () => {
    const leadId = await world.createBooking({ integratorID: 'CRM-9' })
    const { billId } = done(await world.post(`/bookings/${leadId}/bill`))
    const { reportId } = done(await world.post(`/bills/${billId}/reports`, {}))
    done(await world.putPdf(`/reports/${reportId}/upload`))
    done(await world.post(`/reports/${reportId}/sign-off`))
    const [completed] = await world.eventsOf(reportId)
    const [, billCompleted] = await world.eventsOf(billId)
    expect([completed.integratorID, billCompleted.integratorID]).toEqual(['CRM-9', 'CRM-9'])
    expect(billCompleted).toMatchObject({ type: 'bill.completed', data: { bill: { status: 'completed', version: 3 } } })
  })

  test('lists the tests of a package by name, and each test once', async () => {
    const inner = await buildTest(app, world.lab, { name: 'Ferritin' })
    const pack = await buildPackage(app, world.lab, [world.test, inner])
    const leadId = await world.createBooking({
      tests: [{ test: world.test.id }],
      packages: [{ package: pack.id }],
      unmappedTests: [{ name: 'Allergy panel' }],
    })
    const { billId } = done(await world.post(`/bookings/${leadId}/bill`))
    const { tests } = done(await world.post(`/bills/${billId}/reports`, {}))
    expect(tests).toEqual([world.test.name, 'Ferritin', 'Allergy panel'])
  })

  test('that is given another file while its link is followed has one all the time', async () => {
    const { reportId } = await uploadedReport(world)
    const { reportUrl } = done(await world.get(`/reports/${reportId}`))
    const { open } = app.reportStore
    const other = Buffer.from('%PDF-1.4\nanother one\n%%EOF\n')
    app.reportStore.open = async (fileId) => {
      app.reportStore.open = open
      done(await world.putPdf(`/reports/${reportId}/upload`, other))
      return open(fileId)
    }
    expect(await fetchFile(reportUrl)).toMatchObject({ status: 200, body: other })
  })

  test('is seen by its patient once it is signed off', async () => {
    const contact = newContact()
    const leadId = await world.createBooking({ contact, first_name: 'Farhan', last_name: 'Shaikh' })
    const { billId } = done(await world.post(`/bookings/${leadId}/bill`))
    const { reportId } = done(await world.post(`/bills/${billId}/reports`, {}))
    done(await world.putPdf(`/reports/${reportId}/upload`))
    const { token } = await app.accessTokens.issue(world.account.id)
    const otp = await app.call('POST', '/client/patient/getLoginOTP', { token, body: { contact } })
    await app.smsSender.settle()
    const code = app.sms.taken.findLast(({ to }) => to === contact)!.text.slice(0, 6)
    const login = await app.call('POST', '/client/patient/verifyLoginOTP', {
      token,
      body: { otp: code, otpToken: otp.body.otpToken },
    })
    const reports = async () =>
      (
        await app.call('GET', '/client/patient/getReports', {
          token,
          query: { labID: world.lab.id },
          headers: { 'patient-authorization': `Bearer ${login.body.patientToken}` },
        })
      ).body
    expect(await reports()).toEqual([])
    done(await world.post(`/reports/${reportId}/sign-off`))
    const [row] = await reports()
    expect(row).toMatchObject({ _id: reportId, patientName: 'Farhan Shaikh', labName: world.lab.name })
    expect((await fetchFile(row.reportUrl)).body).toEqual(PDF)
  })
})

describe('a bill with several reports', () => {
  test('is complete with the last one, whichever it is, and each item is in one report', async () => {
    const others = [await buildTest(app, world.lab), await buildTest(app, world.lab)]
    const leadId = await world.createBooking({ tests: [world.test, ...others].map(({ id }) => ({ test: id })) })
    const { billId } = done(await world.post(`/bookings/${leadId}/bill`))
    const report = (body: object) => world.post(`/bills/${billId}/reports`, body)
    const first = done(await report({ items: [2] })).reportId
    expect((await report({ items: [4] })).body.error.code).toBe('unknown_item')
    expect((await report({ items: [1, 2] })).body.error.code).toBe('invalid_state')
    const signOff = async (reportId: string) => {
      done(await world.putPdf(`/reports/${reportId}/upload`))
      return world.post(`/reports/${reportId}/sign-off`)
    }
    done(await signOff(first))
    expect(done(await world.get(`/bills/${billId}`)).status).toBe('created')
    const second = done(await report({})).reportId
    expect((await report({})).status).toBe(409)
    done(await signOff(second))
    const bill = done(await world.get(`/bills/${billId}`))
    expect([bill.status, bill.items.map(({ reportId }: any) => reportId)]).toEqual([
      'completed',
      [second, first, second],
    ])
    expect((await world.eventsOf(billId)).map(({ type }) => type)).toEqual(['bill.created', 'bill.completed'])
    expect((await report({})).status).toBe(409)
  })

  test('and no items is complete once all of them are signed off', async () => {
    const { billId } = done(await world.post(`/bookings/${await world.createBooking({ tests: undefined })}/bill`))
    const ids: string[] = []
    for (let n = 0; n < 2; n++) ids.push(done(await world.post(`/bills/${billId}/reports`)).reportId)
    for (const [index, reportId] of ids.entries()) {
      done(await world.putPdf(`/reports/${reportId}/upload`))
      done(await world.post(`/reports/${reportId}/sign-off`))
      expect(done(await world.get(`/bills/${billId}`)).status).toBe(index === 0 ? 'created' : 'completed')
    }
  })

  test('whose last reports are signed off at once is completed once', async () => {
    const others = await Promise.all(Array.from({ length: 5 }, () => buildTest(app, world.lab)))
    const leadId = await world.createBooking({ tests: others.map(({ id }) => ({ test: id })) })
    const { billId } = done(await world.post(`/bookings/${leadId}/bill`))
    const ids: string[] = []
    for (let item = 1; item <= others.length; item++) {
      const { reportId } = done(await world.post(`/bills/${billId}/reports`, { items: [item] }))
      done(await world.putPdf(`/reports/${reportId}/upload`))
      ids.push(reportId)
    }
    const answers = await Promise.all([...ids, ...ids].map((id) => world.post(`/reports/${id}/sign-off`)))
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(ids.length)
    expect((await world.eventsOf(billId)).map(({ type }) => type)).toEqual(['bill.created', 'bill.completed'])
  })
})

describe('an upload', () => {
  const upload = (path: string, body: Buffer, headers: Record<string, string> = {}) =>
    app.call('POST', `/operator/accounts/${world.account.id}${path}`, {
      token: world.staffKey,
      rawBody: body,
      headers: { 'content-type': 'application/pdf', ...headers },
    })

  test('takes PDFs only, by their content, of the size that is allowed, and leaves nothing of what it refuses', async () => {
    const path = `/reports/${await draft()}/upload`
    const before = files().length
    const largest = Buffer.concat([PDF, Buffer.alloc(MAX_BYTES - PDF.length, 0x20)])
    for (const [body, headers, status, code] of [
      [Buffer.from('<html>'), {}, 400, 'not_a_pdf'],
      [Buffer.from('%PD'), {}, 400, 'not_a_pdf'],
      [Buffer.alloc(0), {}, 400, 'not_a_pdf'],
      [Buffer.concat([largest, Buffer.from(' ')]), {}, 413, 'payload_too_large'],
      [Buffer.concat([largest, Buffer.from(' ')]), { 'transfer-encoding': 'chunked' }, 413, 'payload_too_large'],
      [PDF, { 'content-type': 'application/json' }, 415, 'unsupported_media_type'],
      [PDF, { 'content-encoding': 'gzip' }, 415, 'unsupported_media_type'],
    ] as const) {
      const answer = await upload(path, body, headers)
      expect([answer.status, answer.body.error.code]).toEqual([status, code])
    }
    const unknown = await upload(`/reports/${newId(0)}/upload`, PDF)
    expect([unknown.status, files().length]).toEqual([404, before])
    const other = await openStaffWorld(app)
    const foreign = await app.call('POST', `/operator/accounts/${world.account.id}${path}`, {
      token: other.staffKey,
      rawBody: PDF,
      headers: { 'content-type': 'application/pdf' },
    })
    expect([foreign.status, files().length]).toEqual([404, before])
    const taken = await upload(path, largest, { 'transfer-encoding': 'chunked' })
    expect(taken.status).toBe(200)
    expect(readFileSync(join(reportFolder(app.dataDir), `${await fileIdOf(taken.body.reportId)}.pdf`))).toEqual(largest)
  })

  test('is 503 where its folder can not be written, and leaves the draft as it was', async () => {
    const reportId = await draft()
    const folder = reportFolder(app.dataDir)
    renameSync(folder, `${folder}.away`)
    writeFileSync(folder, 'no folder')
    try {
      await expect(app.reportStore.prepare()).rejects.toThrow('EEXIST')
      const answer = await upload(`/reports/${reportId}/upload`, PDF)
      expect([answer.status, answer.body.error.code, answer.headers['retry-after']]).toEqual([503, 'unavailable', '30'])
    } finally {
      rmSync(folder)
      renameSync(`${folder}.away`, folder)
    }
    await app.reportStore.prepare()
    expect((await upload(`/reports/${reportId}/upload`, PDF)).status).toBe(200)
  })

  test('that ends early leaves no file', async () => {
    const path = `/operator/accounts/${world.account.id}/reports/${await draft()}/upload`
    const before = files().length
    const cut = request({
      host: '127.0.0.1',
      port: app.port,
      method: 'POST',
      path,
      headers: { authorization: `Bearer ${world.staffKey}`, 'content-type': 'application/pdf', 'content-length': 5000 },
    })
    cut.on('error', () => {})
    cut.write(PDF)
    await expect.poll(() => files().length).toBe(before + 1)
    cut.destroy()
    await expect.poll(() => files().length).toBe(before)
  })
})

describe('a signed link', () => {
  test('gives the whole file or a part of it, and says what it is', async () => {
    const { reportId } = await uploadedReport(world)
    const { reportUrl } = done(await world.get(`/reports/${reportId}`))
    const whole = await fetchFile(reportUrl)
    expect(whole).toMatchObject({ status: 200, body: PDF })
    expect(whole.headers).toMatchObject({
      'content-type': 'application/pdf',
      'content-length': String(PDF.length),
      'content-disposition': `inline; filename="report-${reportId}.pdf"`,
      'accept-ranges': 'bytes',
    })
    const etag = whole.headers.etag as string
    const last = PDF.length - 1
    for (const [range, status, part, contentRange] of [
      ['bytes=0-4', 206, PDF.subarray(0, 5), `bytes 0-4/${PDF.length}`],
      ['bytes=5-', 206, PDF.subarray(5), `bytes 5-${last}/${PDF.length}`],
      ['bytes=-6', 206, PDF.subarray(-6), `bytes ${PDF.length - 6}-${last}/${PDF.length}`],
      ['bytes=-99999', 206, PDF, `bytes 0-${last}/${PDF.length}`],
      [`bytes=0-${PDF.length + 10}`, 206, PDF, `bytes 0-${last}/${PDF.length}`],
      ['bytes=4-2', 200, PDF, undefined],
      ['bytes=0-1,4-5', 200, PDF, undefined],
      ['pages=1-2', 200, PDF, undefined],
    ] as const) {
      const answer = await fetchFile(reportUrl, { range })
      expect([range, answer.status, answer.headers['content-range']]).toEqual([range, status, contentRange])
      expect(answer.body.equals(part)).toBe(true)
    }
    for (const range of [`bytes=${PDF.length}-`, 'bytes=-0']) {
      const beyond = await fetchFile(reportUrl, { range })
      expect([beyond.status, beyond.headers['content-range']]).toEqual([416, `bytes */${PDF.length}`])
    }
    expect((await fetchFile(reportUrl, { range: 'bytes=0-4', 'if-range': etag })).status).toBe(206)
    expect((await fetchFile(reportUrl, { range: 'bytes=0-4', 'if-range': '"other"' })).status).toBe(200)
    const head = await fetchFile(reportUrl, {}, 'HEAD')
    expect([head.status, head.headers['content-length'], head.body.length]).toEqual([200, String(PDF.length), 0])
    // A range is one of a GET, and one of another file's bytes is none of this one's.
    for (const range of ['bytes=0-4', `bytes=${PDF.length}-`]) {
      const whole = await fetchFile(reportUrl, { range }, 'HEAD')
      expect([whole.status, whole.headers['content-length']]).toEqual([200, String(PDF.length)])
    }
    expect((await fetchFile(reportUrl, { range: 'bytes=5-', 'if-match': `"other", ${etag}` })).status).toBe(206)
    for (const other of ['"other"', `W/${etag}`, '']) {
      const refused = await fetchFile(reportUrl, { range: 'bytes=5-', 'if-match': other })
      expect([refused.status, JSON.parse(refused.body.toString()).error.code]).toEqual([412, 'precondition_failed'])
    }
  })

  test('answers 304 to whoever has the file, a part of it or not, until it is amended', async () => {
    const { reportId } = await uploadedReport(world)
    done(await world.post(`/reports/${reportId}/sign-off`))
    const { reportUrl } = done(await world.get(`/reports/${reportId}`))
    const etag = (await fetchFile(reportUrl)).headers.etag as string
    const known = { 'if-none-match': etag }
    for (const [headers, method] of [
      [known, 'GET'],
      [known, 'HEAD'],
      [{ 'if-none-match': `"other", W/${etag}` }, 'GET'],
      [{ 'if-none-match': '*' }, 'GET'],
      [{ ...known, range: 'bytes=0-4', 'if-range': etag }, 'GET'],
      [{ ...known, range: `bytes=${PDF.length}-` }, 'GET'],
    ] as const) {
      const answer = await fetchFile(reportUrl, headers, method)
      expect([answer.status, answer.headers.etag, answer.body.length]).toEqual([304, etag, 0])
      expect(answer.headers['content-type']).toBeUndefined()
    }
    expect((await fetchFile(reportUrl, { 'if-none-match': '"other"' })).body.equals(PDF)).toBe(true)
    expect((await fetchFile(`${reportUrl}0`, known)).status).toBe(403)
    done(await world.putPdf(`/reports/${reportId}/amend`))
    const amended = await fetchFile(reportUrl, known)
    expect([amended.status, amended.headers.etag === etag]).toEqual([200, false])
  })

  test('of an event lasts 7 days and leads to the newest file; that of a list 15 minutes', async () => {
    const { reportId } = await uploadedReport(world)
    done(await world.post(`/reports/${reportId}/sign-off`))
    const [event] = await world.eventsOf(reportId)
    const listed = done(await world.get(`/reports/${reportId}`)).reportUrl
    app.clock.advance(15 * 60_000)
    expect((await fetchFile(listed)).status).toBe(403)
    app.clock.advance(7 * 86_400_000 - 16 * 60_000)
    expect((await fetchFile(event.data.report.reportUrl)).status).toBe(200)
    app.clock.advance(2 * 60_000)
    expect((await fetchFile(event.data.report.reportUrl)).status).toBe(403)
  })
})

async function fileIdOf(reportId: string): Promise<string> {
  return (await app.database.knex('reports').where({ id: reportId }).first('file_id')).file_id
}

async function fetchFile(url: string, headers: Record<string, string> = {}, method = 'GET') {
  const answer = await fetch(url, { headers, method })
  return {
    status: answer.status,
    headers: Object.fromEntries(answer.headers),
    body: Buffer.from(await answer.arrayBuffer()),
  }
}
