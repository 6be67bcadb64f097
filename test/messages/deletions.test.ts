/**
 * Webhooks that are deleted while messages wait for them: by their integrator, by the operator, and by themselves after a day of
 * failures. `make bench-deletions` does the same with more of both.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { CrashArena } from '../../scripts/crash/crash-arena.ts'
import {
  addTallies,
  deleteWhileQueued,
  newOperatorKey,
  NO_DELETIONS,
  type DeletionStage,
} from '../../scripts/crash/deletion-rounds.ts'
import { startHookedReceiver, type HookedReceiver } from '../../scripts/crash/hooked-receiver.ts'
import { startCountingGateway, type CountingGateway } from '../../scripts/crash/message-gateway.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { createTestTls } from '../support/tls.ts'

/** Each way twice, and so with endpoints that answer 2xx and with such as fail. */
const ROUNDS = 6
const COPIES = 200

let db: TestDatabase
let tls: Awaited<ReturnType<typeof createTestTls>>
let folder: string
let arena: CrashArena
let receiver: HookedReceiver
let gateway: CountingGateway
let stage: DeletionStage

beforeAll(async () => {
  tls = await createTestTls()
  db = await openTestDatabase()
  folder = mkdtempSync(join(tmpdir(), 'lis-deletions-'))
  arena = await CrashArena.open(db.mysqlUrl, folder, tls)
  receiver = await startHookedReceiver(tls)
  gateway = await startCountingGateway()
  const [api] = await Promise.all([
    arena.startApi(),
    ...[1, 2].map(() => arena.startDaemon({ MESSAGE_GATEWAY_URL: gateway.url })),
  ])
  stage = { arena, receiver, gateway, api, operatorKey: await newOperatorKey(arena) }
}, 60_000)
afterAll(async () => {
  await arena.close()
  receiver.close()
  gateway.close()
  await db.close()
  tls.remove()
  rmSync(folder, { recursive: true, force: true })
})

test('a deleted webhook gets no request from a second later on and no new message, and each message is sent once', async () => {
  const rounds = Array.from({ length: ROUNDS }, (_, n) => deleteWhileQueued(stage, n, COPIES))
  const tally = (await Promise.all(rounds)).reduce(addTallies, NO_DELETIONS)
  expect(tally).toMatchObject({ deletions: ROUNDS, queued: ROUNDS * COPIES })
  expect(tally).toMatchObject({ late: 0, astray: 0, both: 0, neither: 0, twice: 0 })
  // Both ends of a message were met.
  expect(Math.min(tally.taken, tally.normal)).toBeGreaterThan(0)
}, 120_000)
