/** What the sweep of the report files takes, and what it never does. */
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { newId } from '../../src/ids.ts'
import { listKnownFiles } from '../../src/reports/bill-reports-repository.ts'
import { reportFolder } from '../../src/reports/report-store.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { done, openStaffWorld, PDF, uploadedReport, type StaffWorld } from './staff-world.ts'

let app: TestApp
let world: StaffWorld

beforeAll(async () => {
  app = await startTestApp()
  world = await openStaffWorld(app)
})
afterAll(() => app.close())

const files = () => readdirSync(reportFolder(app.dataDir))
/** As if it lay there for more than an hour. */
const age = (path: string) => utimesSync(path, Date.now() / 1000 - 3601, Date.now() / 1000 - 3601)
const fileIdOf = async (reportId: string): Promise<string> =>
  (await app.database.knex('reports').where({ id: reportId }).first('file_id')).file_id

describe('the store', () => {
  test('loses what no row speaks of once it is an hour old, and nothing else', async () => {
    const { reportId } = await uploadedReport(world)
    const replaced = await fileIdOf(reportId)
    done(await world.putPdf(`/reports/${reportId}/upload`))
    const kept = await fileIdOf(reportId)
    const folder = reportFolder(app.dataDir)
    // Nobody needs to wait for the sweep where a replacement was committed.
    expect(existsSync(join(folder, `${replaced}.pdf`))).toBe(false)
    const [orphan, unfinished] = [newId(app.clock.nowMs()), newId(app.clock.nowMs())]
    writeFileSync(join(folder, `${orphan}.pdf`), PDF)
    writeFileSync(join(folder, `${unfinished}.pdf.part`), PDF)
    writeFileSync(join(folder, 'notes.txt'), 'not ours')
    const sweep = () => app.reportStore.sweep(app.clock.nowMs(), (ids) => listKnownFiles(app.database.knex, ids))
    app.clock.advance(3_599_000)
    await sweep()
    for (const name of [`${orphan}.pdf`, `${unfinished}.pdf.part`]) {
      expect(existsSync(join(folder, name))).toBe(true)
    }
    app.clock.advance(2000)
    // The database's clock may have been set forward; the disk says how old a file is.
    expect(await sweep()).toEqual({ removed: 0, foreign: 0 })
    for (const name of [`${orphan}.pdf`, `${unfinished}.pdf.part`]) age(join(folder, name))
    expect(await sweep()).toEqual({ removed: 2, foreign: 0 })
    expect(files()).toContain('notes.txt')
    expect(files()).toContain(`${kept}.pdf`)
    expect(await sweep()).toEqual({ removed: 0, foreign: 0 })
  })

  test('is asked again for a file whose row is about to be committed', async () => {
    const { reportId } = await uploadedReport(world)
    const kept = await fileIdOf(reportId)
    const { knex } = app.database
    const { bill_id: billId } = await knex('reports').where({ id: reportId }).first('bill_id')
    const before = files()
    const upload = await knex.transaction(async (trx) => {
      await trx('bills').where({ id: billId }).forUpdate().first('id')
      const waiting = world.putPdf(`/reports/${reportId}/upload`)
      // As a sweep would that takes it for an old one.
      const added = await vi.waitUntil(
        () => files().find((name) => !before.includes(name) && name.endsWith('.pdf')),
        10_000,
      )
      rmSync(join(reportFolder(app.dataDir), added))
      return () => waiting
    })
    const { status, body } = await upload()
    expect([status, body.error.details]).toEqual([
      503,
      'the file was removed before it could be recorded: send it again',
    ])
    expect(await fileIdOf(reportId)).toBe(kept)
    done(await world.putPdf(`/reports/${reportId}/upload`))
  })

  test('says of a disk at fault that it is, for now, and of a file that is not there nothing of the kind', async () => {
    const { reportId } = await uploadedReport(world)
    const fileId = await fileIdOf(reportId)
    const folder = reportFolder(app.dataDir)
    renameSync(folder, `${folder}.away`)
    // In the place of a folder: nothing under it can be reached.
    writeFileSync(folder, '')
    try {
      const told = (done: string) => ({ kind: 'unavailable', message: `files of reports can not be ${done} now` })
      await expect(app.reportStore.open(fileId)).rejects.toMatchObject(told('read'))
      await expect(app.reportStore.remove(fileId)).rejects.toMatchObject(told('removed'))
    } finally {
      rmSync(folder)
      renameSync(`${folder}.away`, folder)
    }
    // It opens, and can't be read.
    const unreadable = newId(0)
    mkdirSync(join(folder, `${unreadable}.pdf`))
    for (const method of ['open', 'remove'] as const) {
      await expect(app.reportStore[method](unreadable)).rejects.toMatchObject({ kind: 'unavailable' })
    }
    rmSync(join(folder, `${unreadable}.pdf`), { recursive: true })
    expect(await app.reportStore.open(unreadable)).toBeUndefined()
    await app.reportStore.remove(unreadable)
  })

  test('loses no whole file to a database that knows none of them', async () => {
    await uploadedReport(world)
    const folder = reportFolder(app.dataDir)
    const unfinished = `${newId(app.clock.nowMs())}.pdf.part`
    writeFileSync(join(folder, unfinished), PDF)
    const demo = newId(app.clock.nowMs())
    writeFileSync(join(folder, `${demo}.pdf`), PDF)
    app.clock.advance(3_601_000)
    for (const name of files()) age(join(folder, name))
    const before = files().filter((name) => name.endsWith('.pdf'))
    // Its demo data it has as well: as every database has.
    const ofAnother = async () => ({ uploaded: new Set<string>(), demo: new Set([demo]) })
    const { removed, foreign } = await app.reportStore.sweep(app.clock.nowMs(), ofAnother)
    expect({ removed, foreign }).toEqual({ removed: 1, foreign: before.length - 1 })
    expect(files().filter((name) => name.endsWith('.pdf'))).toEqual(before)
    expect(files()).not.toContain(unfinished)
  })
})
