/**
 * Webhooks' secrets lie encrypted and bound to their rows: whoever can write to the database can't make one webhook sign with
 * the secret of another, which its own receiver knows.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { deriveKeys } from '../../src/crypto.ts'
import { publicEventId } from '../../src/ids.ts'
import { getDeliverySettings } from '../../src/webhooks/delivery-settings-repository.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { createTestTls } from '../support/tls.ts'

let db: TestDatabase
let world: DeliveryWorld
let tls: Awaited<ReturnType<typeof createTestTls>>
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

const settingsOf = (id: string, keys = world.keys) => getDeliverySettings(db.database.knex, keys, id, world.clock.now())
const sealedOf = async (id: string): Promise<Buffer> =>
  (await db.database.knex('webhook_secrets').where({ webhook_id: id }).first('sealed')).sealed
const seal = (id: string, sealed: Buffer) =>
  db.database.knex('webhook_secrets').where({ webhook_id: id }).update({ sealed })

test('a secret that was moved to another row does not open, and nothing is sent with it; the others go on', async () => {
  const [first, second, third] = [
    await world.webhook({ endpoint: `${receiver.url}/first` }),
    await world.webhook({ endpoint: `${receiver.url}/second` }),
    await world.webhook({ endpoint: `${receiver.url}/third` }),
  ]
  const [ofFirst, ofSecond] = [await sealedOf(first.id), await sealedOf(second.id)]
  // That they were opened in their own places makes no difference.
  for (const { id } of [first, second]) await settingsOf(id)
  await seal(first.id, ofSecond)
  await seal(second.id, ofFirst)
  await expect(settingsOf(first.id)).rejects.toThrow()
  await expect(settingsOf(second.id)).rejects.toThrow()
  const daemon = await world.daemon(tls.caFile)
  const events = [await world.event()]
  await receiver.arrived(1)
  // The others' lanes were offered with that one's.
  events.push(await world.event())
  await receiver.arrived(2)
  await daemon.stop()
  await seal(first.id, ofFirst)
  await seal(second.id, ofSecond)
  // Back in their places they serve: nothing of what waited is lost.
  await world.daemon(tls.caFile)
  await receiver.arrived(6, 20_000)
  const [early, late] = [receiver.requests.slice(0, 2), receiver.requests.slice(2)]
  expect(early.map(({ path }) => path)).toEqual(['/third', '/third'])
  expect(late.map(({ path }) => path).sort()).toEqual(['/first', '/first', '/second', '/second'])
  const ids = new Set(receiver.requests.map(({ headers }) => headers['webhook-id']))
  expect(ids).toEqual(new Set(events.map(({ id }) => publicEventId(id))))
  expect((await settingsOf(third.id)).endpoint).toBe(`${receiver.url}/third`)
})

test('one bit changed in what is stored, or another key: it does not open', async () => {
  const { id } = await world.webhook({ endpoint: receiver.url, events: ['bill.created'] })
  const sealed = await sealedOf(id)
  for (let bit = 0; bit < sealed.length * 8; bit += 5) {
    const changed = Buffer.from(sealed)
    changed[bit >> 3]! ^= 1 << (bit & 7)
    await seal(id, changed)
    await expect(settingsOf(id)).rejects.toThrow()
  }
  await seal(id, sealed)
  await expect(settingsOf(id, deriveKeys(Buffer.alloc(32, 9)))).rejects.toThrow('another SECRETS_KEY')
  expect((await settingsOf(id)).signingKeys).toHaveLength(1)
})
