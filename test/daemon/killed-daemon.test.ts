import type { ChildProcess } from 'node:child_process'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { monotonicMs } from '../../src/clock.ts'
import { publicEventId } from '../../src/ids.ts'
import { daemonProcesses, exited, type DaemonProcesses } from '../support/daemon-process.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { createTestTls } from '../support/tls.ts'

let db: TestDatabase
let tls: Awaited<ReturnType<typeof createTestTls>>
let world: DeliveryWorld
let receiver: HttpsReceiver
let hold: Promise<void> | undefined
let daemons: DaemonProcesses
let last: ChildProcess

beforeAll(async () => {
  tls = await createTestTls()
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
  daemons = daemonProcesses(db.mysqlUrl, tls.caFile)
  receiver = await startHttpsReceiver(tls, async () => {
    await hold
    return { status: 200 }
  })
})
afterAll(async () => {
  daemons.close()
  await world.close()
  await receiver.close()
  await db.close()
  tls.remove()
})

test('a killed daemon loses nothing: what was in flight is tried again within 15 s, and nothing else is sent twice', async () => {
  const webhooks = await Promise.all(
    Array.from({ length: 4 }, (_, n) => world.webhook({ endpoint: `${receiver.url}/${n}` })),
  )
  const first = await daemons.start()
  const sent: string[] = []
  for (let n = 0; n < 50; n++) sent.push(publicEventId((await world.event()).id))
  await receiver.arrived(webhooks.length * 50)
  await world.settled()

  // What is in flight at the kill stays unanswered, so it can't have been recorded.
  let release = () => {}
  hold = new Promise((resolve) => (release = resolve))
  const answered = receiver.requests.length
  for (let n = 0; n < 20; n++) sent.push(publicEventId((await world.event()).id))
  await receiver.arrived(answered + webhooks.length)
  const killed = exited(first)
  first.kill('SIGKILL')
  await killed
  const killedAtMs = monotonicMs()
  const inFlight = receiver.requests.length - answered
  hold = undefined
  release()

  last = await daemons.start()
  await receiver.arrived(answered + inFlight + webhooks.length * 20, 25_000)
  await world.settled()
  const copies = receiver.requests.map(({ path, headers }) => `${path.slice(1)} ${headers['webhook-id']}`)
  for (const id of sent) for (let n = 0; n < webhooks.length; n++) expect(copies).toContain(`${n} ${id}`)
  expect(copies.length - new Set(copies).size).toBe(inFlight)
  const repeated = receiver.requests.slice(answered + inFlight)
  expect(repeated[0]!.atMs - killedAtMs).toBeLessThan(15_000)
}, 60_000)

test('what a killed daemon had in flight at a slow endpoint is tried again within 15 s too, all of it', async () => {
  const path = 'slow'
  await world.webhook({ endpoint: `${receiver.url}/${path}`, events: ['lead.created'] })
  const copies = () => receiver.requests.filter((request) => request.path === `/${path}`)
  const arrived = (n: number) =>
    vi.waitFor(() => expect(copies().length).toBeGreaterThanOrEqual(n), { timeout: 20_000 })
  for (let n = 0; n < 20; n++) await world.event({ type: 'lead.created' })
  await arrived(20)
  await world.settled()

  // Ten, as many as one endpoint is to have, and none is answered before all have come twice.
  let release = () => {}
  hold = new Promise((resolve) => (release = resolve))
  for (let n = 0; n < 10; n++) await world.event({ type: 'lead.created' })
  await arrived(30)
  const killed = exited(last)
  last.kill('SIGKILL')
  await killed
  const killedAtMs = monotonicMs()
  last = await daemons.start()
  await arrived(40)
  for (const { atMs } of copies().slice(30, 40)) expect(atMs - killedAtMs).toBeLessThan(15_000)
  hold = undefined
  release()
  await world.settled()
  expect(copies()).toHaveLength(40)
}, 60_000)

test('a daemon that is told to stop ends with 0, and leaves no lane owned and no row of its own', async () => {
  const daemon = last
  for (let n = 0; n < 10; n++) await world.event()
  const ended = exited(daemon)
  daemon.kill('SIGTERM')
  expect(await ended).toBe(0)
  expect(await db.database.knex('daemons').select('token')).toEqual([])
  expect(await db.database.knex('lanes').whereNotNull('owner').select('webhook_id')).toEqual([])
})
