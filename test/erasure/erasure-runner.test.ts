/** Who carries erasures on that an earlier process, or a short answer, has left. */
import { randomBytes } from 'node:crypto'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { processClock } from '../../src/clock.ts'
import { deriveKeys } from '../../src/crypto.ts'
import { NO_COUNTS } from '../../src/erasure/erasure-rules.ts'
import { startErasures } from '../../src/erasure/erasure-runner.ts'
import { insertErasure } from '../../src/erasure/erasures-repository.ts'
import { newId } from '../../src/ids.ts'
import { createLogger } from '../../src/logger.ts'
import type { ReportStore } from '../../src/reports/report-store.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'

let db: TestDatabase
let world: DeliveryWorld

beforeAll(async () => {
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
})
afterAll(async () => {
  await world.close()
  await db.close()
})

const knex = () => db.database.knex
const keys = deriveKeys(randomBytes(32))

/** One that has only to be ended. */
async function almostDone(): Promise<string> {
  const now = world.clock.now()
  const id = newId(now.getTime())
  const erasure = {
    id,
    accountId: world.accountId,
    subject: null,
    isGivenUp: false,
    counts: NO_COUNTS,
    createdAt: now,
    updatedAt: now,
  }
  await knex().transaction((trx) =>
    insertErasure(trx, keys, {
      ...erasure,
      state: 'running',
      phase: 'copies',
      labId: null,
      position: null,
      finishedAt: null,
    }),
  )
  return id
}

test('every erasure has its turn, however many before it wait for a daemon', async () => {
  const held: string[] = []
  // Events that are not fanned out yet: each waits for a daemon, and there is none.
  for (let n = 0; n < 12; n++) {
    held.push(await almostDone())
    const event = await world.event()
    await knex()('erased_events').insert({ erasure_id: held.at(-1), event_id: event.id })
  }
  await almostDone()
  const stop = startErasures({
    ...{ database: db.database, clock: processClock, keys, reportStore: {} as ReportStore, hint: () => {} },
    logger: createLogger('api', 'silent'),
  })
  const running = () => knex()('erasures').where({ state: 'running' }).orderBy('id').pluck('id')
  try {
    await expect.poll(running, { timeout: 5000 }).toEqual(held.toSorted())
  } finally {
    await knex()('unrouted_events').delete()
    await expect.poll(running, { timeout: 10_000 }).toEqual([])
    await stop()
  }
})
