/** Erasures where the disk is at fault, or the key was lost under which they were ordered. */
import { renameSync, rmSync, writeFileSync } from 'node:fs'
import { Writable } from 'node:stream'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { deriveKeys, seal } from '../../src/crypto.ts'
import { NO_COUNTS, type Erasure, type ErasureSubject } from '../../src/erasure/erasure-rules.ts'
import { startErasures } from '../../src/erasure/erasure-runner.ts'
import { insertErasure } from '../../src/erasure/erasures-repository.ts'
import { createLogger } from '../../src/logger.ts'
import { newId } from '../../src/ids.ts'
import { insertSms } from '../../src/patients/sms-repository.ts'
import { reportFolder } from '../../src/reports/report-store.ts'
import { done, openStaffWorld, uploadedReport, type StaffWorld } from '../staff/staff-world.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { buildOperatorKey, newContact } from '../support/builders.ts'

let app: TestApp
let world: StaffWorld
let adminKey: string

beforeAll(async () => {
  app = await startTestApp()
  world = await openStaffWorld(app)
  adminKey = await buildOperatorKey(app, { role: 'admin' })
})
afterAll(() => app.close())

const knex = () => app.database.knex
const path = () => `/operator/accounts/${world.account.id}/erasures`
const order = async (body: object) => done(await app.call('POST', path(), { token: adminKey, body }))
const look = async (id: string) => (await app.call('GET', `${path()}/${id}`, { token: adminKey })).body
const carryOn = () => {
  const { database, clock, keys, reportStore } = app
  const stream = new Writable({ write: (line, _, done) => (lines.push(String(line)), done()) })
  return startErasures({
    database,
    clock,
    keys,
    reportStore,
    logger: createLogger('api', 'warn', stream),
    hint: () => {},
  })
}
const lines: string[] = []

const lostKeys = deriveKeys(Buffer.alloc(32, 8))
const SUBJECT: ErasureSubject = {
  ...{ contact: newContact(), email: null, name: null, patientId: null },
  ...{ leadIds: [], preBookingIds: [], billIds: [], people: [] },
}

/** Ordered before the key was lost. */
async function orderedBefore(phase: Erasure['phase']): Promise<string> {
  const now = app.clock.now()
  const id = newId(now.getTime())
  const rest = { labId: null, position: null, counts: NO_COUNTS, createdAt: now, updatedAt: now, finishedAt: null }
  const erasure: Erasure = { id, accountId: world.account.id, state: 'running', phase, subject: SUBJECT, ...rest }
  await knex().transaction((trx) => insertErasure(trx, lostKeys, erasure))
  return id
}

test('an erasure whose key was lost fails, and can be looked at; one that has only copies to wait for ends', async () => {
  const [lost, almostDone] = [await orderedBefore('entries'), await orderedBefore('copies')]
  expect(await look(lost)).toMatchObject({ state: 'running' })
  const stop = carryOn()
  try {
    await expect.poll(async () => (await look(lost)).state, { timeout: 5000 }).toBe('failed')
    await expect.poll(async () => (await look(almostDone)).state, { timeout: 5000 }).toBe('completed')
  } finally {
    await stop()
  }
  expect((await look(lost)).finishedAt).toEqual(expect.any(String))
  expect(await knex()('erasures').where({ id: lost }).first('subject')).toEqual({ subject: null })
})

test('a text message whose key was lost keeps nobody from being erased, and is given up', async () => {
  const [id, createdAt] = [newId(app.clock.nowMs()), app.clock.now()]
  const content = seal(lostKeys, Buffer.from(JSON.stringify({ to: newContact(), text: '123456' })), `sms:${id}`)
  const expiresAt = new Date(createdAt.getTime() + 300_000)
  await knex().transaction((trx) => insertSms(trx, { id, accountId: world.account.id, content, createdAt, expiresAt }))
  const contact = newContact()
  await world.createEntry({ contact })
  const answer = await order({ contact })
  expect(answer).toMatchObject({ state: 'completed', erased: { entries: 1, textMessages: 1 } })
  expect(await knex()('sms_messages').where({ id }).first('content', 'due_at')).toEqual({ content: null, due_at: null })
})

test('an erasure whose files can not be removed goes on until they can', async () => {
  const { billId, reportId } = await uploadedReport(world)
  done(await world.post(`/reports/${reportId}/sign-off`))
  const folder = reportFolder(app.dataDir)
  renameSync(folder, `${folder}.away`)
  // In the place of a folder: nothing under it can be read or removed.
  writeFileSync(folder, '')
  const { erasureId, state } = await order({ billIds: [billId] })
  expect(state).toBe('running')
  const stop = carryOn()
  try {
    await expect.poll(() => lines.join(''), { timeout: 5000 }).toContain('erasures.delayed')
    expect((await look(erasureId)).state).toBe('running')
    rmSync(folder)
    renameSync(`${folder}.away`, folder)
    await expect.poll(async () => (await look(erasureId)).state, { timeout: 10_000 }).toBe('completed')
  } finally {
    await stop()
  }
  expect((await look(erasureId)).erased).toMatchObject({ reportFiles: 1 })
})
