import { afterAll, beforeAll, expect, test } from 'vitest'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { monotonicMs } from '../../src/clock.ts'
import { claimWebhook, recordDeletion } from '../../src/webhooks/webhooks-repository.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { createTestTls } from '../support/tls.ts'

const COPIES = 20_000

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

const knex = () => db.database.knex

/** Due since now; ids that no other event has. */
async function addCopies(webhookId: string): Promise<void> {
  const ids = Array.from({ length: COPIES }, (_, n) => `0waiting${String(n).padStart(18, '0')}`)
  const dueAt = world.clock.now()
  for (let from = 0; from < COPIES; from += 5000) {
    const part = ids.slice(from, from + 5000)
    await knex()('event_bodies').insert(part.map((id) => ({ event_id: id, body: Buffer.from('{}') })))
    await knex()('delivery_queue').insert(
      part.map((id) => ({ webhook_id: webhookId, due_at: dueAt, event_id: id, epoch: 1 })),
    )
  }
}

/** Deletes in the transaction in which the API does it. @returns rows that the server read or wrote for it */
async function deleteCounting(webhookId: string): Promise<number> {
  return db.database.transaction(async (trx) => {
    const handled = async () => {
      const [rows] = await trx.raw(
        `SHOW SESSION STATUS WHERE Variable_name IN ('Handler_read_next', 'Handler_read_rnd_next', 'Handler_read_key', 'Handler_update', 'Handler_delete', 'Handler_write')`,
      )
      return (rows as { Value: string }[]).reduce((sum, row) => sum + Number(row.Value), 0)
    }
    const before = await handled()
    const idle = (await handled()) - before
    const claimed = await claimWebhook(trx, world.accountId, world.labId, webhookId, 'whole_lab')
    expect(claimed).toBeDefined()
    await recordDeletion(trx, webhookId, world.clock.now())
    return (await handled()) - before - 2 * idle
  })
}

test('the deletion of a webhook touches no waiting copy; the lane stops within a second, and discards them all', async () => {
  const empty = await world.webhook({ endpoint: receiver.url })
  const full = await world.webhook({ endpoint: receiver.url })
  await addCopies(full.id)
  const rowsOfEmpty = await deleteCounting(empty.id)
  await world.daemon(tls.caFile)
  await knex()('lanes').where({ webhook_id: full.id }).update({ due_at: world.clock.now() })
  await receiver.arrived(100)
  expect(await deleteCounting(full.id)).toBeLessThanOrEqual(rowsOfEmpty + 20)
  const answeredAtMs = monotonicMs()
  await expect
    .poll(async () => (await knex()('delivery_queue').where({ webhook_id: full.id }).first('event_id')) === undefined, {
      timeout: 60_000,
      interval: 100,
    })
    .toBe(true)
  expect(receiver.requests.at(-1)!.atMs - answeredAtMs).toBeLessThan(1000 + 500)
  const rows = await knex()('deliveries').where({ webhook_id: full.id }).groupBy('status').select('status').count({ n: '*' }) // prettier-ignore
  const counts = Object.fromEntries(rows.map((row: Record<string, unknown>) => [row.status, Number(row.n)]))
  expect(counts).toEqual({ delivered: receiver.requests.length, discarded: COPIES - receiver.requests.length })
}, 90_000)
