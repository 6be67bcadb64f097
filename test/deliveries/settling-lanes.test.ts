/** Settling reads webhooks and queue without their locks: these come before the lane's in the order of all, or wait for it. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { COMMIT } from '../../db/batch.ts'
import { monotonicMs } from '../../src/clock.ts'
import { settleLanes } from '../../src/deliveries/lanes-repository.ts'
import { newId } from '../../src/ids.ts'
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

/** A lane that this daemon has taken, with one copy that waits. */
async function takenLane(): Promise<{ id: string; daemon: HandDaemon }> {
  const labId = newId(0)
  const { id } = await world.webhook({ endpoint: 'https://partner.example.com/', labId })
  const daemon = new HandDaemon(world)
  await world.event({ labId })
  await daemon.route()
  expect(await daemon.take(id)).toBe(true)
  return { id, daemon }
}

const laneOf = (id: string) => db.database.knex('lanes').where({ webhook_id: id }).first('due_at', 'owner')
const settle = (id: string, token: string) =>
  db.database.batch.transaction((send) => settleLanes(send, [id], token, [COMMIT]))

test('who holds the webhook’s row or its copies is not waited for', async () => {
  const { id, daemon } = await takenLane()
  const copy = await db.database.knex('delivery_queue').where({ webhook_id: id }).first('due_at')
  await db.database.transaction(async (trx) => {
    await trx('webhooks').where({ id }).forUpdate().first('id')
    await trx('delivery_queue').where({ webhook_id: id }).forUpdate()
    const startedAtMs = monotonicMs()
    await settle(id, daemon.token)
    expect(monotonicMs() - startedAtMs).toBeLessThan(500)
  })
  expect(await laneOf(id)).toEqual({ due_at: copy.due_at, owner: null })
})

test('what is committed while it waits for the lane is seen', async () => {
  const { id, daemon } = await takenLane()
  const { knex } = db.database
  const row = await knex('delivery_queue').where({ webhook_id: id }).first()
  await knex('delivery_queue').where({ webhook_id: id }).delete()
  let settling: Promise<void>
  await knex.transaction(async (trx) => {
    await trx('lanes').where({ webhook_id: id }).forUpdate().first('webhook_id')
    settling = settle(id, daemon.token)
    await new Promise((resolve) => setTimeout(resolve, 200))
    await trx('delivery_queue').insert(row)
  })
  await settling!
  expect(await laneOf(id)).toEqual({ due_at: row.due_at, owner: null })
})

test('a lane of another owner stays as it is', async () => {
  const { id, daemon } = await takenLane()
  const before = await laneOf(id)
  await settle(id, newId(0))
  expect(await laneOf(id)).toEqual(before)
  await settle(id, daemon.token)
  expect((await laneOf(id)).owner).toBe(null)
})
