import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { SignJWT } from 'jose'
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import type { Lab } from '../../src/catalogue/labs-repository.ts'
import { hmacSha256 } from '../../src/crypto.ts'
import { newId } from '../../src/ids.ts'
import { contactHash } from '../../src/patients/otp-rules.ts'
import type { Patient } from '../../src/patients/patients-repository.ts'
import { reportFolder } from '../../src/reports/report-store.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { buildAccount, buildLab, buildPatient, buildReport, type TestAccount } from '../support/builders.ts'

let app: TestApp
let account: TestAccount
let lab: Lab
let patient: Patient

const MINUTE = 60_000

beforeAll(async () => {
  app = await startTestApp()
})
afterAll(() => app.close())
beforeEach(async () => {
  account = await buildAccount(app)
  lab = await buildLab(app, account)
  patient = await buildPatient(app, account, { name: 'Farhan Shaikh' })
})

const tokenOf = async (caller: TestAccount) => (await app.accessTokens.issue(caller.id)).token
async function logIn(contact = patient.contact, caller = account): Promise<string> {
  const token = await tokenOf(caller)
  const { body } = await app.call('POST', '/client/patient/getLoginOTP', { token, body: { contact } })
  await app.smsSender.settle()
  const otp = app.sms.taken.findLast(({ to }) => to === contact)!.text.slice(0, 6)
  const login = await app.call('POST', '/client/patient/verifyLoginOTP', {
    token,
    body: { otp, otpToken: body.otpToken },
  })
  return login.body.patientToken
}
async function getReports(header: string | undefined, caller = account, labID: string | undefined = lab.id) {
  return app.call('GET', '/client/patient/getReports', {
    token: await tokenOf(caller),
    query: { labID },
    headers: header === undefined ? {} : { 'patient-authorization': header },
  })
}

describe('the list of reports', () => {
  test('of large reports has all of them: a server that would sort their rows refuses rows of this size', async () => {
    const tests = Array.from({ length: 10_000 }, (_, n) => `Panel number ${n} of the ${n % 7}`)
    const large = [1, 2, 3].map((day) => ({ tests, reportDate: new Date(`2026-06-0${day}T00:00:00Z`) }))
    const built = []
    for (const wish of large) built.push(await buildReport(app, patient, lab, wish))
    const { status, body } = await getReports(`Bearer ${await logIn()}`)
    expect([status, body.map((row: { _id: string }) => row._id)]).toEqual([200, built.map(({ id }) => id).toReversed()])
    expect(body.map((row: { tests: string[] }) => row.tests.join() === tests.join())).toEqual([true, true, true])
  })

  test('has those of every patient with the contact at that lab, the newest first, signed off ones only', async () => {
    const sister = await buildPatient(app, account, { contact: patient.contact, name: 'Sana Shaikh' })
    const at = (day: string) => ({ reportDate: new Date(`2026-06-${day}T12:31:08.402Z`) })
    const oldest = await buildReport(app, patient, lab, at('01'))
    const newest = await buildReport(app, patient, lab, { ...at('14'), tests: ['TSH', 'HbA1c'] })
    const middle = await buildReport(app, sister, lab, at('07'))
    await buildReport(app, patient, lab, { ...at('20'), status: 'draft' })
    await buildReport(app, patient, await buildLab(app, account), at('20'))
    await buildReport(app, await buildPatient(app, account), lab, at('20'))
    const other = await buildAccount(app)
    await buildReport(app, await buildPatient(app, other, { contact: patient.contact }), await buildLab(app, other))
    const { status, body } = await getReports(`Bearer ${await logIn()}`)
    expect([status, body.map((row: { _id: string }) => row._id)]).toEqual([200, [newest.id, middle.id, oldest.id]])
    expect(body[0]).toEqual({
      _id: newest.id,
      reportUrl: expect.stringMatching(
        new RegExp(`^http://127.0.0.1:${app.port}/files/reports/${newest.id}\\?expires=\\d+&signature=[0-9a-f]{64}$`),
      ),
      reportDate: '2026-06-14T12:31:08.402Z',
      labName: lab.name,
      patientName: 'Farhan Shaikh',
      tests: ['TSH', 'HbA1c'],
    })
    expect(body[1].patientName).toBe('Sana Shaikh')
  })

  test('is empty where there are none, and can be read of an inactive lab', async () => {
    const closed = await buildLab(app, account, { active: false })
    await buildReport(app, patient, closed)
    const header = `Bearer ${await logIn()}`
    expect((await getReports(header)).body).toEqual([])
    expect((await getReports(header, account, closed.id)).body).toHaveLength(1)
  })

  test('of a lab that is unknown or of another account is one 403, and without a lab 400', async () => {
    const header = `Bearer ${await logIn()}`
    const foreign = await buildLab(app, await buildAccount(app))
    for (const labID of [foreign.id, newId(0), 'x', `${lab.id} `, lab.id.toUpperCase()]) {
      const answer = await getReports(header, account, labID)
      expect([answer.status, answer.body.error.details]).toEqual([403, 'labID does not belong to the account'])
    }
    const search = await app.call('GET', '/client/patient/getReports', {
      token: account.token,
      headers: { 'patient-authorization': header },
    })
    expect(search.status).toBe(400)
  })
})

describe('a patient token', () => {
  const invalid = { details: 'invalid patient token', code: 'invalid_patient_token' }

  test('serves for 30 minutes', async () => {
    const header = `Bearer ${await logIn()}`
    app.clock.advance(30 * MINUTE - 1000)
    expect((await getReports(header)).status).toBe(200)
    app.clock.advance(1000)
    expect((await getReports(header)).body.error).toEqual(invalid)
  })

  test('is void after a new login of its contact, and not after that of another', async () => {
    const first = `Bearer ${await logIn()}`
    await logIn((await buildPatient(app, account)).contact)
    expect((await getReports(first)).status).toBe(200)
    const second = `Bearer ${await logIn()}`
    expect((await getReports(first)).status).toBe(401)
    expect((await getReports(second)).status).toBe(200)
  })

  test('of another account is 401, also where the other has the same contact and no lab is sent', async () => {
    const other = await buildAccount(app)
    await buildPatient(app, other, { contact: patient.contact })
    const header = `Bearer ${await logIn()}`
    await logIn(patient.contact, other)
    for (const labID of [lab.id, (await buildLab(app, other)).id, '']) {
      const answer = await getReports(header, other, labID)
      expect([answer.status, answer.body.error]).toEqual([401, invalid])
    }
  })

  test('may have more than one space before it', async () => {
    const good = await logIn()
    for (const header of [`Bearer  ${good}`, `bearer     ${good}`]) expect((await getReports(header)).status).toBe(200)
  })

  test('that is missing, malformed or forged is 401', async () => {
    const good = await logIn()
    const [head, payload, signature] = good.split('.') as [string, string, string]
    const hash = contactHash(app.keys, account.id, patient.contact)
    const claims = { contact: hash.toString('base64url'), epoch: 1 }
    const forge = (key: Buffer, change: (jwt: SignJWT) => SignJWT = (jwt) => jwt, alg = 'HS256', typ = 'pt+jwt') =>
      change(
        new SignJWT(claims)
          .setProtectedHeader({ alg, typ })
          .setIssuer('laboratory-integration-service')
          .setAudience('laboratory-integration-service/patient')
          .setSubject(account.id)
          .setJti('x')
          .setIssuedAt(app.clock.nowMs() / 1000)
          .setExpirationTime(app.clock.nowMs() / 1000 + 60),
      ).sign(key)
    const none = Buffer.from('{"alg":"none","typ":"pt+jwt"}').toString('base64url')
    expect((await getReports(`Bearer ${await forge(app.keys.patientToken)}`)).status).toBe(200)
    for (const header of [
      undefined,
      '',
      good,
      `Basic ${good}`,
      `Bearer\t${good}`,
      `Bearer \t${good}`,
      `Bearer ${good},`,
      `Bearer${good}`,
      `Bearer ${good} `.repeat(2),
      `Bearer ${head}.${payload}.${signature.slice(0, -2)}`,
      `Bearer ${none}.${payload}.`,
      `Bearer ${'x'.repeat(50_000)}`,
      `Bearer ${account.token}`,
      `Bearer ${await forge(app.keys.accessToken)}`,
      `Bearer ${await forge(app.keys.patientToken, (jwt) => jwt.setAudience('laboratory-integration-service/client'))}`,
      `Bearer ${await forge(app.keys.patientToken, undefined, 'HS256', 'at+jwt')}`,
      `Bearer ${await forge(app.keys.patientToken, undefined, 'HS512')}`,
      `Bearer ${await forge(app.keys.patientToken, (jwt) => jwt.setExpirationTime(app.clock.nowMs() / 1000 - 1))}`,
    ]) {
      const answer = await getReports(header)
      expect([answer.status, answer.body.error]).toEqual([401, invalid])
    }
  })

  test('is no access token, and an access token is asked for first', async () => {
    const patientToken = await logIn()
    expect((await app.call('GET', '/client/labs', { token: patientToken })).status).toBe(401)
    const answer = await app.call('GET', '/client/patient/getReports', { token: patientToken })
    expect(answer.body.error.code).toBe('invalid_access_token')
  })
})

describe('the link to a report', () => {
  const pdf = '%PDF-1.4 a report'
  let url: string

  beforeEach(async () => {
    const report = await buildReport(app, patient, lab)
    mkdirSync(reportFolder(app.dataDir), { recursive: true })
    writeFileSync(join(reportFolder(app.dataDir), `${report.id}.pdf`), pdf)
    url = (await getReports(`Bearer ${await logIn()}`)).body[0].reportUrl
  })

  test('leads to the PDF without any token, for 15 minutes', async () => {
    const answer = await fetch(url)
    expect([answer.status, await answer.text()]).toEqual([200, pdf])
    expect(answer.headers.get('content-type')).toBe('application/pdf')
    expect(answer.headers.get('content-disposition')).toMatch(/^inline; filename="report-[0-9a-z]{26}\.pdf"$/)
    expect(answer.headers.get('cache-control')).toBe('no-store')
    app.clock.advance(15 * MINUTE - 1000)
    expect((await fetch(url)).status).toBe(200)
    app.clock.advance(1000)
    const late = await fetch(url)
    expect([late.status, await late.json()]).toMatchObject([
      403,
      { success: false, status: 403, message: 'Forbidden', error: { code: 'invalid_report_link' } },
    ])
  })

  test('that was changed anywhere is 403, whether or not there is such a report', async () => {
    const link = new URL(url)
    const expires = Number(link.searchParams.get('expires'))
    const signature = link.searchParams.get('signature')!
    const changed = (change: (other: URL) => void) => {
      const other = new URL(link)
      change(other)
      return other
    }
    for (const other of [
      changed(({ searchParams }) => searchParams.set('expires', String(expires + 1))),
      changed(({ searchParams }) => searchParams.set('expires', `${expires}.0`)),
      changed(({ searchParams }) => searchParams.delete('expires')),
      changed(({ searchParams }) => searchParams.delete('signature')),
      changed(({ searchParams }) => searchParams.set('signature', signature.slice(0, -2))),
      changed(({ searchParams }) => searchParams.set('signature', signature.toUpperCase())),
      changed(({ searchParams }) => searchParams.set('signature', hmacSha256(app.keys.otp, 'x').toString('hex'))),
      changed((to) => (to.pathname = `/files/reports/${newId(0)}`)),
      changed((to) => (to.search = '')),
    ]) {
      expect((await fetch(other)).status).toBe(403)
    }
  })

  test('is 404 when the file is gone, for a path that no report can have, and 405 for other methods', async () => {
    for (const path of ['', 'x', '..%2F..%2Fsecrets.key', `${newId(0)}.pdf`]) {
      expect((await fetch(new URL(`/files/reports/${path}`, url))).status).toBe(404)
    }
    expect((await fetch(url, { method: 'POST' })).status).toBe(405)
    rmSync(reportFolder(app.dataDir), { recursive: true })
    const gone = await fetch(url, { headers: { 'if-none-match': '*' } })
    expect([gone.status, ((await gone.json()) as { error: { details: string } }).error.details]).toEqual([
      404,
      'the file of this report is gone',
    ])
  })

  test('leaves neither its id nor its signature in the log', async () => {
    await (await fetch(url)).text()
    const line = await vi.waitUntil(() => app.logs().find(({ route }) => route === '/files/reports/{id}'))
    expect(line).toMatchObject({ event: 'request.completed', status: 200 })
    const link = new URL(url)
    const logged = JSON.stringify(app.logs())
    expect(logged).not.toContain(link.searchParams.get('signature'))
    expect(logged).not.toContain(link.pathname)
  })
})

test('no attempt of this file was answered with a fault of ours', () => {
  expect(app.logs().filter(({ status }) => Number(status) >= 500)).toEqual([])
})
