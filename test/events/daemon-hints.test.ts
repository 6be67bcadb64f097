/**
 * What daemons are told, received as they do it: on sockets of their own, by their rows.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { listenForHints, type HintListener } from '../../daemon/hint-listener.ts'
import { monotonicMs } from '../../src/clock.ts'
import { insertDaemon } from '../../src/deliveries/daemons-repository.ts'
import { DaemonHints, type Hint } from '../../src/events/daemon-hints.ts'
import { newId } from '../../src/ids.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'

interface Told {
  token: string
  hints: Hint[]
  listener: HintListener
}

let db: TestDatabase
let hints: DaemonHints
const told: Told[] = []

beforeAll(async () => {
  db = await openTestDatabase()
  for (let n = 0; n < 2; n++) {
    const received: Hint[] = []
    const token = newId(n)
    const listener = await listenForHints('127.0.0.1', 0, (hint) => received.push(hint))
    told.push({ token, hints: received, listener })
    await insertDaemon(db.database.knex, { token, hintHost: '127.0.0.1', hintPort: listener.port }, new Date())
  }
  hints = new DaemonHints(db.database.knex)
  // The first one reads who is there.
  hints.send('settings')
  for (const { hints: received } of told) {
    while (received.length === 0) await sleep(10)
    expect(received.splice(0)).toEqual([{ kind: 'settings' }])
  }
})
afterAll(async () => {
  hints.close()
  for (const { listener } of told) listener.close()
  await db.database.knex('daemons').delete()
  await db.close()
})

const idsOf = (count: number) => Array.from({ length: count }, (_, n) => newId(n))
const lanesNamed = ({ hints: received }: Told) => received.flatMap(({ webhookIds = [] }) => webhookIds)

test('lanes are named to the others, so many in a datagram, and also right after another hint', async () => {
  const [own, other] = told as [Told, Told]
  const groups = [idsOf(90), idsOf(1), idsOf(40)]
  hints.send('events')
  for (const webhookIds of groups) hints.send('lanes', { webhookIds, exceptToken: own.token })
  await expect.poll(() => lanesNamed(other).length).toBe(131)
  expect(lanesNamed(other)).toEqual(groups.flat())
  expect(other.hints.map(({ kind, webhookIds }) => [kind, webhookIds?.length])).toEqual([
    ['events', undefined],
    ...[40, 40, 10, 1, 40].map((count) => ['lanes', count]),
  ])
  expect(own.hints).toEqual([{ kind: 'events' }])
  for (const { hints: received } of told) received.splice(0)
})

test('of very many lanes none is named: all are to be looked at', async () => {
  hints.send('lanes', { webhookIds: idsOf(201) })
  for (const { hints: received } of told) await expect.poll(() => received).toEqual([{ kind: 'lanes' }])
})

/** What comes within a millisecond goes together: where the machine was busy with other things for so long, they are sent again. */
async function sendInOneMoment(eventIds: string[]): Promise<void> {
  const { hints: received } = told[0]!
  for (let n = 0; n < 50; n++) {
    await sleep(20)
    received.splice(0)
    const startedAtMs = monotonicMs()
    for (const eventId of eventIds) hints.send('events', { eventId })
    if (monotonicMs() - startedAtMs < 1) return
  }
  throw new Error('no loop of a few turns took less than a millisecond')
}

test('what comes right behind another hint is told of as well, all of it in one datagram, with its name where it is alone', async () => {
  const [first, second, third] = idsOf(3) as [string, string, string]
  const { hints: received } = told[0]!
  await sendInOneMoment([first, second])
  await expect.poll(() => received).toEqual([first, second].map((eventId) => ({ kind: 'events', eventId })))
  await sendInOneMoment([first, second, third])
  await expect.poll(() => received).toEqual([{ kind: 'events', eventId: first }, { kind: 'events' }])
})

test('a daemon that is known by a name gets its hints', async () => {
  const received: Hint[] = []
  const listener = await listenForHints('127.0.0.1', 0, (hint) => received.push(hint))
  const token = newId(2)
  await insertDaemon(db.database.knex, { token, hintHost: 'localhost', hintPort: listener.port }, new Date())
  const others = new DaemonHints(db.database.knex)
  try {
    others.send('settings')
    await expect.poll(() => received).toEqual([{ kind: 'settings' }])
  } finally {
    others.close()
    listener.close()
    await db.database.knex('daemons').where({ token }).delete()
  }
})

test('what is committing is told of where nothing was for a moment, and takes no place of what is committed', async () => {
  const { hints: received } = told[0]!
  await sleep(50)
  received.splice(0)
  const [eventId, other] = idsOf(2) as [string, string]
  hints.send('committing', { eventId })
  hints.send('events', { eventId })
  hints.send('committing', { eventId: other })
  await expect.poll(() => received.length).toBe(2)
  await sleep(50)
  expect(received.splice(0)).toEqual([
    { kind: 'committing', eventId },
    { kind: 'events', eventId },
  ])
})
