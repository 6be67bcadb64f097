/** Erasures where the disk is at fault, or the key was lost under which they were ordered. */
import { renameSync, rmSync, writeFileSync } from 'node:fs'
import { Writable } from 'node:stream'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { deriveKeys, seal } from '../../src/crypto.ts'
import { NO_COUNTS, type Erasure, type ErasureSubject } from '../../src/erasure/erasure-rules.ts'
import { stepErasure } from '../../src/erasure/erasure.ts'
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
const carryOn = (secretsKeyLost = false) => {
  const { database, clock, keys, reportStore } = app
  const stream = new Writable({ write: (line, _, done) => (lines.push(String(line)), done()) })
  return startErasures({
    database,
    clock,
    keys,
    reportStore,
    logger: createLogger('api', 'warn', stream),
    hint: () => {},
    secretsKeyLost,
  })
}
const lines: string[] = []

const lostKeys = deriveKeys(Buffer.alloc(32, 8))
const SUBJECT: ErasureSubject = {
  ...{ contact: newContact(), email: null, name: null, patientId: null },
  ...{ leadIds: [], preBookingIds: [], billIds: [], people: [] },
}

/** Ordered under that key. */
async function orderedBefore(subject: Partial<ErasureSubject> = {}, phase: Erasure['phase'] = 'entries') {
  const now = app.clock.now()
  const id = newId(now.getTime())
  const rest = { isGivenUp: false, labId: null, position: null, counts: NO_COUNTS, finishedAt: null }
  const about = { accountId: world.account.id, subject: { ...SUBJECT, ...subject }, createdAt: now, updatedAt: now }
  const erasure: Erasure = { id, state: 'running', phase, ...about, ...rest }
  await knex().transaction((trx) => insertErasure(trx, lostKeys, erasure))
  return id
}

const phaseOf = async (id: string) => (await knex()('erasures').where({ id }).first('phase')).phase

test('an erasure whose key was lost ends what it had begun, and fails; one that had only copies to wait for is completed', async () => {
  const contact = newContact()
  const leadId = await world.createEntry({ contact, first_name: 'Zarathustra' })
  const bodies = async () => {
    const events = knex()('events').where({ subject_id: leadId }).select('id')
    return String((await knex()('event_bodies').whereIn('event_id', events).pluck('body')).join())
  }
  expect(await bodies()).toContain('Zarathustra')
  const { database, clock, reportStore } = app
  const [begun, almostDone] = [await orderedBefore({ contact }), await orderedBefore({}, 'copies')]
  while ((await phaseOf(begun)) !== 'login') await stepErasure({ database, clock, keys: lostKeys, reportStore }, begun)
  expect(done(await world.get(`/entries/${leadId}`)).first_name).not.toBe('Zarathustra')
  expect(await look(begun)).toMatchObject({ state: 'running', erased: { entries: 1, events: 0 } })
  // No daemon is there that would fan them out.
  await knex()('unrouted_events').delete()

  // As long as nobody has said that the key is lost, it may be set right.
  let stop = carryOn()
  await expect.poll(() => lines.join(''), { timeout: 5000 }).toContain('erasures.delayed')
  await stop()
  expect([await phaseOf(begun), (await look(begun)).state]).toEqual(['login', 'running'])
  stop = carryOn(true)
  try {
    await expect.poll(async () => (await look(begun)).state, { timeout: 9000 }).toBe('failed')
    await expect.poll(async () => (await look(almostDone)).state, { timeout: 5000 }).toBe('completed')
  } finally {
    await stop()
  }
  expect(await look(begun)).toMatchObject({ finishedAt: expect.any(String), erased: { entries: 1, events: 1 } })
  expect(await bodies()).not.toContain('Zarathustra')
  expect(await knex()('erasures').where({ id: begun }).first('subject')).toEqual({ subject: null })
  expect(await order({ contact })).toMatchObject({ state: 'completed', erased: { entries: 0 } })
  lines.length = 0
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
