/**
 * Webhooks whose secret can't be opened: each is named once and left alone for a while, and they take nobody's place.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { createTestTls } from '../support/tls.ts'

/** More than are offered at a time. */
const BROKEN = 210

let db: TestDatabase
let tls: Awaited<ReturnType<typeof createTestTls>>
let world: DeliveryWorld
let receiver: HttpsReceiver

beforeAll(async () => {
  tls = await createTestTls()
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
  receiver = await startHttpsReceiver(tls)
})
afterAll(async () => {
  await world.close()
  await receiver.close()
  await db.close()
  tls.remove()
})

test('however many there are, what another webhook gets by its lane alone is sent, and the log names each once', async () => {
  const { knex } = db.database
  for (let n = 0; n < BROKEN; n += 10)
    await Promise.all(Array.from({ length: 10 }, () => world.webhook({ endpoint: receiver.url })))
  await knex('webhook_secrets').update({ sealed: Buffer.alloc(60, 1) })
  const { id } = await world.webhook({ endpoint: receiver.url })
  await world.event()
  await world.daemon(tls.caFile)
  await receiver.arrived(1)
  const dueLanes = async () =>
    Number((await knex('lanes').whereNull('owner').whereNotNull('due_at').count({ n: '*' }))[0]!.n)
  await expect.poll(dueLanes, { timeout: 20_000 }).toBe(BROKEN)
  const named = () => world.logged.filter(({ event }) => event === 'lane.settings_unusable')
  const namedIds = () => named().map(({ webhookId }) => webhookId)
  await expect.poll(() => new Set(namedIds()).size, { timeout: 10_000 }).toBe(BROKEN)
  await world.sendTestEvent(id)
  await expect.poll(() => receiver.requests.length, { timeout: 10_000 }).toBe(2)
  // Each is still due and was passed over since: it is not named again.
  expect(namedIds().sort()).toEqual(await knex('webhooks').whereNot({ id }).orderBy('id').pluck('id'))
  expect(named().every(({ level }) => level === 50)).toBe(true)
}, 60_000)
