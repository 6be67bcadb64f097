/**
 * When a daemon takes another one for dead, by looks whose distances the test decides.
 */
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest'
import { Membership } from '../../daemon/membership.ts'
import { insertDaemon } from '../../src/deliveries/daemons-repository.ts'
import { newId } from '../../src/ids.ts'
import { createLogger } from '../../src/logger.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'

let db: TestDatabase
let world: DeliveryWorld
let membership: Membership
let freed: string[]
let lines: Record<string, unknown>[]
let nowMs: number

beforeAll(async () => {
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
})
afterAll(async () => {
  await world.close()
  await db.close()
})
beforeEach(async () => {
  await db.database.knex('daemons').delete()
  freed = []
  lines = []
  const stream = { write: (line: string) => void lines.push(JSON.parse(line)) }
  nowMs = Math.ceil(performance.now())
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
  vi.spyOn(performance, 'now').mockImplementation(() => nowMs)
  membership = new Membership({
    database: db.database,
    clock: world.clock,
    log: createLogger('daemon', 'warn', stream),
    hintHost: '127.0.0.1',
    hintPort: 1,
    onExpelled: () => {},
    onFreed: (token) => freed.push(token),
  })
  await membership.join()
})
afterEach(async () => {
  await membership.leave()
  vi.restoreAllMocks()
  vi.useRealTimers()
})

const beatOf = async (token: string) => (await db.database.knex('daemons').where({ token }).first('beat'))?.beat

/** A look, so long after the one before; returns when it is over: only then does the next one begin, which changes nothing. */
async function look(afterMs: number): Promise<void> {
  const before = await beatOf(membership.token)
  nowMs += afterMs
  await vi.waitFor(
    async () => {
      vi.advanceTimersByTime(1000)
      expect(await beatOf(membership.token)).toBeGreaterThanOrEqual(before + 2)
    },
    { timeout: 10_000, interval: 5 },
  )
}

async function silentDaemon(): Promise<string> {
  const token = newId(world.clock.nowMs())
  await insertDaemon(db.database.knex, { token, hintHost: '127.0.0.1', hintPort: 2 }, world.clock.now())
  await look(1000)
  return token
}

test('a beat that stands still for more than five seconds means death, not before', async () => {
  const silent = await silentDaemon()
  for (let n = 0; n < 5; n++) await look(1000)
  expect(freed).toEqual([])
  const { id } = await world.webhook({ endpoint: 'https://hooks.example.com/' })
  await db.database.knex('lanes').where({ webhook_id: id }).update({ owner: silent })
  await look(1000)
  expect(freed).toEqual([silent])
  const [line] = lines
  expect(line).toMatchObject({
    event: 'daemon.dead',
    daemon: silent,
    by: membership.token,
    host: '127.0.0.1',
    port: 2,
    lanes: 1,
  })
  expect(line!.durationMs).toBeGreaterThan(5000)
})

test('from three silent seconds on, and for a while behind the death, lanes may be those of a dead daemon', async () => {
  await silentDaemon()
  for (let n = 0; n < 2; n++) await look(1000)
  expect(membership.hasSeenDeath).toBe(false)
  await look(1000)
  expect(membership.hasSeenDeath).toBe(true)
  for (let n = 0; n < 3; n++) await look(1000)
  expect(freed).toHaveLength(1)
  nowMs += 14_000
  expect(membership.hasSeenDeath).toBe(true)
  nowMs += 2000
  expect(membership.hasSeenDeath).toBe(false)
})

test('a time without a look of its own counts as one missed beat: nobody’s beat could move', async () => {
  await silentDaemon()
  for (let n = 0; n < 4; n++) await look(1000)
  await look(60_000)
  expect(freed).toEqual([])
})

test('a daemon that is always slow to look sees the death of another one all the same', async () => {
  const silent = await silentDaemon()
  for (let n = 0; n < 6; n++) await look(4000)
  expect(freed).toEqual([silent])
})

test('a beat that moves at each look means life, however far the looks are apart', async () => {
  const other = await silentDaemon()
  for (let n = 0; n < 8; n++) {
    await db.database.knex('daemons').where({ token: other }).increment('beat', 1)
    await look(4000)
  }
  expect(freed).toEqual([])
})

test('a beat that is under way when it leaves does not register it again', async () => {
  const { knex } = db.database
  vi.advanceTimersByTime(1000)
  await membership.leave()
  // Longer than the beat, which finds no row, and the registering that would follow.
  await new Promise((resolve) => setTimeout(resolve, 200))
  expect(await knex('daemons').pluck('token')).toEqual([])
  expect(lines.map(({ event, msg }) => event ?? msg)).toEqual([])
})
