import { afterAll, beforeAll, expect, test } from 'vitest'
import { eraseEvents } from '../../src/erasure/erased-events-repository.ts'
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

test('an event that is erased while its attempt is under way is not sent again when that fails', async () => {
  const { knex } = db.database
  const { id } = await world.webhook({ endpoint: 'https://erased.example.in/hooks' })
  const daemon = new HandDaemon(world)
  const [erased, kept] = [(await world.event()).id, (await world.event()).id]
  await daemon.route()
  expect(await daemon.take(id)).toBe(true)
  const copies = await daemon.waiting(id)
  await db.database.transaction((trx) => eraseEvents(trx, newId(world.clock.nowMs()), [erased], world.clock.now()))
  await daemon.record(copies.map((copy) => ({ copy, ok: false })))
  const epochs = await knex('delivery_queue').where({ webhook_id: id }).select('event_id', 'epoch', 'attempts')
  expect(new Map(epochs.map((row) => [row.event_id, [row.epoch, row.attempts]]))).toEqual(
    new Map([
      [erased, [0, 1]],
      [kept, [1, 1]],
    ]),
  )
  expect(await daemon.discard(id)).toMatchObject({ copies: 1 })
  expect(await knex('delivery_queue').where({ webhook_id: id }).pluck('event_id')).toEqual([kept])
  await knex('lanes').where({ webhook_id: id }).update({ owner: null })
})

test('a person of many events takes no more statements than one of few', async () => {
  const { knex } = db.database
  const { id } = await world.webhook({ endpoint: 'https://many.example.in/hooks' })
  const daemon = new HandDaemon(world)
  const erase = async (events: number) => {
    const ids: string[] = []
    for (let n = 0; n < events; n++) ids.push((await world.event()).id)
    await daemon.route()
    expect(await daemon.take(id)).toBe(true)
    await daemon.record((await daemon.waiting(id)).map((copy) => ({ copy, ok: true })))
    await knex('lanes').where({ webhook_id: id }).update({ owner: null })
    await knex('deliveries')
      .whereIn('event_id', ids)
      .update({ answer: Buffer.from('of whom it was') })
    let statements = 0
    const count = () => (statements += 1)
    knex.on('query', count)
    const { answers } = await db.database.transaction((trx) =>
      eraseEvents(trx, newId(world.clock.nowMs()), ids, world.clock.now()),
    )
    knex.off('query', count)
    expect(answers).toBe(events)
    expect(await knex('deliveries').whereIn('event_id', ids).whereNotNull('answer')).toEqual([])
    return statements
  }
  const few = await erase(2)
  expect(await erase(40)).toBe(few)
})
