/**
 * What the recorder does with a batch that the database does not take as a whole.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { Recorder } from '../../daemon/recorder.ts'
import type { BatchPool } from '../../db/batch.ts'
import type { AttemptResult } from '../../src/deliveries/recording-rules.ts'
import { createLogger } from '../../src/logger.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { HandDaemon } from '../support/hand-daemon.ts'

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

/** A database to which more than `most` of these events at once are too much: the server itself says so. */
function narrow(eventIds: string[], most: number, errno: number): BatchPool {
  const { batch } = db.database
  return {
    ...batch,
    transaction: (work) =>
      batch.transaction((send) =>
        work((statements) => {
          const text = JSON.stringify(statements)
          if (eventIds.filter((id) => text.includes(id)).length <= most) return send(statements)
          return send([{ sql: `SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = ${errno}, MESSAGE_TEXT = 'too much'` }])
        }),
      ),
  }
}

function recorderOf(daemon: HandDaemon, batch: BatchPool) {
  const recorded: AttemptResult[] = []
  const unrecordable: AttemptResult[] = []
  const recorder = new Recorder({
    batch,
    token: () => daemon.token,
    clock: world.clock,
    rules: { ...world.config({}), random: () => 0 },
    log: createLogger('daemon', 'silent'),
    onRecorded: (results) => recorded.push(...results),
    onUnrecordable: (result) => unrecordable.push(result),
  })
  return { recorder, recorded, unrecordable }
}

test.each([
  [1206, 'too many locks'],
  [1969, 'too long, says MariaDB'],
  [3024, 'too long, says MySQL'],
  [1053, 'the connection breaks each time'],
])('a batch that is too much for the database is halved until it is not (%i: %s)', async (errno) => {
  const { id } = await world.webhook({ endpoint: 'https://lims.example.in/hooks' })
  const daemon = new HandDaemon(world)
  for (let n = 0; n < 8; n++) await world.event()
  await daemon.route()
  await daemon.take(id)
  const copies = await daemon.waiting(id)
  const eventIds = copies.map(({ eventId }) => eventId)
  const { recorder, recorded, unrecordable } = recorderOf(daemon, narrow(eventIds, 2, errno))
  for (const copy of copies) recorder.push(daemon.result(copy, true))
  await recorder.drain()
  expect(recorded.map(({ eventId }) => eventId).toSorted()).toEqual(eventIds.toSorted())
  expect(unrecordable).toEqual([])
  expect(await daemon.waiting(id)).toEqual([])
  await db.database.knex('lanes').update({ owner: null })
})

/** Two events that wait for a webhook, and the recorder of the daemon that owns its lane. */
async function withTwoCopies() {
  const { id } = await world.webhook({ endpoint: 'https://lims.example.in/hooks' })
  const daemon = new HandDaemon(world)
  await world.event()
  await world.event()
  await daemon.route()
  await daemon.take(id)
  const copies = await daemon.waiting(id)
  return { daemon, copies, webhookId: id, ...recorderOf(daemon, db.database.batch) }
}

test('of a run whose lane was lost nothing is recorded, also under the token that has the lane anew', async () => {
  const { daemon, copies, recorder, recorded, webhookId } = await withTwoCopies()
  const run = { isLost: false }
  recorder.push({ ...daemon.result(copies[0]!, true), run })
  recorder.push({ ...daemon.result(copies[1]!, true), run: { isLost: false } })
  run.isLost = true
  await recorder.drain()
  expect(recorded.map(({ eventId }) => eventId)).toEqual([copies[1]!.eventId])
  expect((await daemon.waiting(webhookId)).map(({ eventId }) => eventId)).toEqual([copies[0]!.eventId])
  await db.database.knex('lanes').update({ owner: null })
})

test('an attempt that is on disk already is left out, and the rest of its batch is recorded', async () => {
  const { daemon, copies, recorder, recorded, unrecordable, webhookId } = await withTwoCopies()
  await daemon.record([{ copy: copies[0]!, ok: false }])
  const retried = async () => (await daemon.waiting(webhookId)).map(({ eventId, attempts }) => [eventId, attempts])
  recorder.push(daemon.result(copies[0]!, false))
  recorder.push(daemon.result(copies[1]!, false))
  await recorder.drain()
  expect(unrecordable).toEqual([])
  expect(recorded).toHaveLength(2)
  expect((await retried()).toSorted()).toEqual([[copies[0]!.eventId, 1], [copies[1]!.eventId, 1]].toSorted()) // prettier-ignore
  expect(await db.database.knex('earlier_attempts').where({ webhook_id: webhookId }).pluck('n')).toEqual([1, 1])
  await db.database.knex('lanes').update({ owner: null })
})
