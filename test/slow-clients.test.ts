/**
 * Clients that take their time, hundreds at once: each is told so and cut off, and meanwhile the others are answered. Slow in
 * five ways: nothing at all, half a head, a head byte by byte, half a body, a body byte by byte; and not reading the answers.
 */
import { createConnection, type Socket } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { monotonicMs } from '../src/clock.ts'
import { startTestApp, type TestApp } from './support/app.ts'
import { buildAccount, type TestAccount } from './support/builders.ts'

const EACH = Number(process.env.SLOW_CLIENTS ?? 500) / 5
/** What is promised, and a second for the check that runs once a second. */
const CLOSED_WITHIN_MS = 15_000 + 1000
/** How much later a busy machine may see it. */
const LEEWAY_MS = 4000

let app: TestApp
let account: TestAccount

beforeAll(async () => {
  app = await startTestApp({ accessTokenTtlSeconds: 86_400 })
  account = await buildAccount(app)
})
afterAll(() => app.close())

const head = () => `POST /client/crm/lead/create HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${account.token}\r\n`
const withBody = () => `${head()}Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n`

/** [what is sent at once, what follows each second] */
const KINDS: Record<string, () => [first: string, drip: string | undefined]> = {
  silent: () => ['', undefined],
  'half a head': () => [head(), undefined],
  'a dripping head': () => [head(), 'X'],
  'half a body': () => [`${withBody()}{"a":`, undefined],
  'a dripping body': () => [withBody(), ' '],
}

interface Slow {
  kind: string
  answer: string
  closedAfterMs: number
}

function connectSlowly(kind: string): Promise<Slow> {
  const startedAtMs = monotonicMs()
  const [first, drip] = KINDS[kind]!()
  return new Promise((resolve) => {
    let answer = ''
    let dripping: NodeJS.Timeout | undefined
    const socket: Socket = createConnection(app.port, '127.0.0.1', () => {
      socket.write(first)
      if (drip !== undefined) dripping = setInterval(() => socket.write(drip), 1000)
    })
    socket.on('data', (data) => (answer += data.toString('latin1')))
    socket.on('error', () => {})
    socket.on('close', () => {
      clearInterval(dripping)
      resolve({ kind, answer, closedAfterMs: monotonicMs() - startedAtMs })
    })
  })
}

test('500 slow clients are cut off after 15 s, with a 408 in the error shape, and the others are answered meanwhile', async () => {
  const { token } = account
  const slow = Promise.all(
    Object.keys(KINDS).flatMap((kind) => Array.from({ length: EACH }, () => connectSlowly(kind))),
  )
  let isOver = false
  void slow.then(() => (isOver = true))
  let answered = 0
  while (!isOver) {
    expect((await app.call('GET', '/client/labs', { token })).status).toBe(200)
    answered++
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  for (const { kind, answer, closedAfterMs } of await slow) {
    expect([kind, answer.slice(0, 33)]).toEqual([kind, 'HTTP/1.1 408 Request Timeout\r\nCon'])
    expect([kind, answer]).toEqual([kind, expect.stringContaining('"success":false,"status":408')])
    expect(closedAfterMs, kind).toBeLessThan(CLOSED_WITHIN_MS + LEEWAY_MS)
  }
  expect(answered).toBeGreaterThan(20)
  const entries = await app.database.knex('entries').where({ account_id: account.id })
  expect(entries).toEqual([])
}, 60_000)
