/**
 * Whatever the order in which messages are recorded, fanned out, tried, taken and handed back, and webhooks deleted,
 * auto-deleted and reactivated: each message goes out exactly once by exactly one way. The transactions are the real ones and
 * overlap in the database; who does what when is drawn by a seed.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { isRetriable } from '../../db/connection.ts'
import { sendMessages } from '../../daemon/jobs/send-messages.ts'
import { newId, publicEventId } from '../../src/ids.ts'
import { createLogger } from '../../src/logger.ts'
import { createMessageGateway } from '../../src/messages/message-gateway.ts'
import { claimWebhook, recordReactivation } from '../../src/webhooks/webhooks-repository.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { TestGateway } from '../support/gateway.ts'
import { HandDaemon } from '../support/hand-daemon.ts'

const INTERLEAVINGS = Number(process.env.INTERLEAVINGS ?? 1000)
const SEED = Number(process.env.INTERLEAVINGS_SEED ?? Math.floor(Math.random() * 1e9))
const MESSAGES_EACH = 20
const LABS_AT_ONCE = 6
const DAY_MS = 86_400_000

let db: TestDatabase
let world: DeliveryWorld
let gateway: TestGateway

beforeAll(async () => {
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
  gateway = await new TestGateway().start()
})
afterAll(async () => {
  await world.close()
  await gateway.close()
  await db.close()
})

/** Mulberry32. */
function draw(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296
  }
}

/** As the daemon does: a transaction that met another one is run again. */
async function insist<T>(work: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await work()
    } catch (error) {
      if (!isRetriable(error)) throw error
    }
  }
}

interface Lab {
  id: string
  random: () => number
  webhookIds: string[]
  /** The owner of each webhook's lane. */
  daemons: HandDaemon[]
  messageIds: string[]
  /** Older than a day. */
  old: Set<string>
  /** Messages that a webhook has answered with 2xx. */
  accepted: Set<string>
  autoDeleted: boolean
}

async function openLab(seed: number): Promise<Lab> {
  const random = draw(seed)
  const id = newId(world.clock.nowMs())
  const daemon = () => new HandDaemon(world, { RETRY_SCHEDULE: '1' })
  const first = daemon()
  // One webhook; or two, in the lanes of one daemon or of two.
  const daemons = [[first], [first, first], [first, daemon()], [first, daemon()]][Math.floor(random() * 4)]!
  const webhookIds: string[] = []
  for (const owner of daemons) {
    const webhook = await world.webhook({
      endpoint: 'https://partner.example.com/',
      labId: id,
      events: ['booking.send'],
    })
    await owner.take(webhook.id)
    webhookIds.push(webhook.id)
  }
  const nothing = { messageIds: [], old: new Set<string>(), accepted: new Set<string>(), autoDeleted: false }
  return { id, random, webhookIds, daemons, ...nothing }
}

/** The lets-others-go-first between two steps of an actor. */
async function pause({ random }: Lab): Promise<void> {
  for (let turns = Math.floor(random() * 12); turns > 0; turns--) await new Promise((resolve) => setImmediate(resolve))
}

async function recordMessages(lab: Lab): Promise<void> {
  for (let n = 0; n < MESSAGES_EACH; n++) {
    const { id } = await world.message({ labId: lab.id })
    lab.messageIds.push(id)
    if (lab.random() < 0.5) {
      const then = new Date(world.clock.nowMs() - DAY_MS - 1000)
      const aged = await db.database
        .knex('messages')
        .where({ event_id: id, state: 'offered' })
        .update({ created_at: then })
      if (aged === 1) lab.old.add(id)
    }
    await pause(lab)
  }
}

/** One look of the lane at its webhook: what is there is sent and recorded, or discarded where the webhook has gone. */
async function work(lab: Lab, index: number): Promise<void> {
  const [webhookId, daemon] = [lab.webhookIds[index]!, lab.daemons[index]!]
  const webhook = await db.database.knex('webhooks').where({ id: webhookId }).first('state', 'epoch')
  await pause(lab)
  const copies = (await daemon.waiting(webhookId)).slice(0, 1 + Math.floor(lab.random() * 8))
  const current = copies.filter(({ epoch }) => webhook.state === 'active' && epoch === webhook.epoch)
  if (current.length === 0) {
    await insist(() => daemon.discard(webhookId))
    return
  }
  await pause(lab)
  const answers = current.map((copy) => ({ copy, ok: lab.random() < 0.4 }))
  for (const { copy, ok } of answers) if (ok) lab.accepted.add(copy.eventId)
  await pause(lab)
  const { healthChanges } = await insist(() => daemon.record(answers))
  if (healthChanges.some(({ to }) => to === 'auto_deleted')) lab.autoDeleted = true
}

async function runLane(lab: Lab, index: number): Promise<void> {
  for (let n = 0; n < 8; n++) {
    await work(lab, index)
    await pause(lab)
  }
}

async function finishLane(lab: Lab, index: number): Promise<void> {
  while ((await lab.daemons[index]!.waiting(lab.webhookIds[index]!)).length > 0) await work(lab, index)
}

/** Deletes the webhook, lets it be auto-deleted by its next failure, or leaves it alone. */
async function endWebhook(lab: Lab, webhookId: string): Promise<void> {
  for (let n = Math.floor(lab.random() * 20); n > 0; n--) await pause(lab)
  const fate = lab.random()
  if (fate < 0.4) return insist(() => world.deleteWebhook(webhookId, lab.id))
  if (fate > 0.9) return
  const dayAgo = new Date(world.clock.nowMs() - DAY_MS - 1000)
  const failing = { first_failure_at: dayAgo, failed_attempts: 8, last_error: 'HTTP status 500', warned_at: dayAgo }
  await db.database.knex('webhooks').where({ id: webhookId, state: 'active' }).update(failing)
  for (let n = 0; n < 10; n++) await pause(lab)
  if (lab.random() < 0.5) await insist(() => reactivate(lab, webhookId))
}

async function reactivate(lab: Lab, webhookId: string): Promise<void> {
  await db.database.transaction(async (trx) => {
    const claimed = await claimWebhook(trx, world.accountId, lab.id, webhookId, 'whole_lab', ['auto_deleted'])
    if (claimed) await recordReactivation(trx, webhookId, world.clock.now())
  })
}

async function runLab(seed: number): Promise<Lab> {
  const lab = await openLab(seed)
  const areDeletedTogether = lab.random() < 0.3
  await Promise.all([
    recordMessages(lab),
    ...lab.webhookIds.map((_, index) => runLane(lab, index)),
    ...(areDeletedTogether ? [] : lab.webhookIds.map((id) => endWebhook(lab, id))),
  ])
  if (areDeletedTogether) await Promise.all(lab.webhookIds.map((id) => world.deleteWebhook(id, lab.id)))
  return lab
}

const sending = () =>
  sendMessages({
    database: db.database,
    clock: world.clock,
    log: createLogger('daemon', 'silent'),
    gateway: createMessageGateway({ url: gateway.url, dataDir: '/nonexistent', now: () => world.clock.now() }),
  })

/** Fans out and sends as two daemons do, until `done`. */
async function runInBackground(done: () => boolean): Promise<void> {
  const senders = [sending(), sending()]
  const loop = async (index: number) => {
    const daemon = new HandDaemon(world)
    while (!done()) {
      await insist(() => daemon.route(1 + index * 40))
      await senders[index]!.run()
      await new Promise((resolve) => setTimeout(resolve, index * 10))
    }
  }
  await Promise.all([loop(0), loop(1)])
}

test(`of ${INTERLEAVINGS} messages each goes out once by one way (seed ${SEED})`, async () => {
  const seeds = Array.from({ length: INTERLEAVINGS / MESSAGES_EACH }, (_, n) => SEED + n)
  const labs: Lab[] = []
  let finished = false
  const background = runInBackground(() => finished)
  const next = async () => {
    for (let seed = seeds.pop(); seed !== undefined; seed = seeds.pop()) labs.push(await runLab(seed))
  }
  await Promise.all(Array.from({ length: LABS_AT_ONCE }, next))
  // Whatever is left over comes to its end.
  while (await db.database.knex('unrouted_events').first()) await new HandDaemon(world).route()
  for (const lab of labs) await Promise.all(lab.webhookIds.map((_, index) => finishLane(lab, index)))
  finished = true
  await background
  await sending().run()

  const states = new Map((await db.database.knex('messages')).map((row) => [row.event_id as string, row]))
  const counts = { taken: 0, normal: 0, expired: 0 }
  for (const lab of labs) {
    for (const id of lab.messageIds) {
      const { state, sent_at: sentAt } = states.get(id)!
      const atGateway = gateway.taken.filter((key) => key === publicEventId(id)).length
      const seen = { state, accepted: lab.accepted.has(id), atGateway, sent: sentAt !== null }
      const expected = {
        taken: { state: 'taken', accepted: true, atGateway: 0, sent: false },
        normal: { state: 'normal', accepted: false, atGateway: 1, sent: true },
        expired: { state: 'expired', accepted: false, atGateway: 0, sent: false },
      }
      expect(seen, `message ${id}`).toEqual(expected[state as keyof typeof expected])
      if (state === 'expired') expect([lab.old.has(id), lab.autoDeleted]).toEqual([true, true])
      counts[state as keyof typeof counts] += 1
    }
  }
  console.log(`interleavings: ${JSON.stringify(counts)}`)
  // Otherwise this has shown little.
  for (const count of Object.values(counts)) expect(count).toBeGreaterThan(0)
}, 120_000)
