/**
 * Each point at which a process may be killed, once: real processes, killed from outside at exactly that point. `make
 * bench-crash` does the same many times over, and at random.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { CrashArena } from '../scripts/crash/crash-arena.ts'
import { CRASH_POINTS, type Stage } from '../scripts/crash/crash-points.ts'
import { startHookedReceiver } from '../scripts/crash/hooked-receiver.ts'
import { startMailSink } from '../scripts/crash/mail-sink.ts'
import { openTestDatabase } from './support/database.ts'
import { createTestTls } from './support/tls.ts'

/** Services side by side: what each mostly does is wait until a dead daemon is noticed. */
const STAGES = 7

const folder = mkdtempSync(join(tmpdir(), 'lis-crash-'))
const cleanups: (() => Promise<unknown>)[] = []
let tls: Awaited<ReturnType<typeof createTestTls>>
const stages = new Map<number, Promise<Stage>>()

beforeAll(async () => {
  tls = await createTestTls()
})
afterAll(async () => {
  for (const cleanup of cleanups) await cleanup()
  tls.remove()
  rmSync(folder, { recursive: true, force: true })
})

async function openStage(n: number): Promise<Stage> {
  const db = await openTestDatabase()
  const arena = await CrashArena.open(db.mysqlUrl, join(folder, String(n)), tls)
  const receiver = await startHookedReceiver(tls)
  const mails = await startMailSink()
  cleanups.push(async () => {
    await arena.close()
    receiver.close()
    await mails.close()
    await db.close()
  })
  return { arena, receiver, mails }
}

/** One after the other on one stage: each goes on with the process that the last one left. */
function onStage<T>(n: number, work: (stage: Stage) => Promise<T>): Promise<T> {
  const stage = stages.get(n) ?? openStage(n)
  const done = stage.then(work)
  stages.set(
    n,
    done.then(
      () => stage,
      () => stage,
    ),
  )
  return done
}

/** Of the API one stage each half, of mails one each, of the daemon the others in turn. */
let deliveries = 0
let calls = 0
let mailed = 0
const stageOf = { api: () => calls++ % 2, mail: () => 2 + mailed++, daemon: () => 5 + (deliveries++ % (STAGES - 5)) }

describe.concurrent('killed there, it makes up for it and sends nothing too often', () => {
  for (const point of CRASH_POINTS) {
    const n = stageOf[point.process]()
    test(point.name, { timeout: 120_000 }, async () => {
      await expect(onStage(n, (stage) => point.run(stage))).resolves.toBeUndefined()
    })
  }
})
