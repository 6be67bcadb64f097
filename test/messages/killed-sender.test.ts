import { spawn, type ChildProcess } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { publicEventId } from '../../src/ids.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld, SECRETS_KEY } from '../support/delivery-world.ts'
import { TestGateway } from '../support/gateway.ts'

let db: TestDatabase
let world: DeliveryWorld
let gateway: TestGateway
const folder = mkdtempSync(join(tmpdir(), 'lis-kill-'))
const children: ChildProcess[] = []

beforeAll(async () => {
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
  gateway = await new TestGateway().start()
})
afterAll(async () => {
  for (const child of children) child.kill('SIGKILL')
  await world.close()
  await gateway.close()
  await db.close()
  rmSync(folder, { recursive: true, force: true })
})

function startDaemonProcess(): ChildProcess {
  const child = spawn(process.execPath, ['daemon/main.ts'], {
    env: {
      ...process.env,
      NODE_ENV: 'test',
      MYSQL_URL: db.mysqlUrl,
      SECRETS_KEY: SECRETS_KEY.toString('base64'),
      MESSAGE_GATEWAY_URL: gateway.url,
      DATA_DIR: folder,
      PORT: '0',
      DAEMON_PORT: '0',
      LOG_LEVEL: 'error',
    },
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  children.push(child)
  return child
}

/** Its signal, or its exit code. */
function endOf(child: ChildProcess): Promise<string | number | null> {
  return new Promise((resolve) => child.once('exit', (code, signal) => resolve(signal ?? code)))
}

test('a daemon that is killed while it sends loses no message; what was in flight comes again under the same key', async () => {
  const ids: string[] = []
  for (let n = 0; n < 30; n++) ids.push(publicEventId((await world.message()).id))
  let isKilled = false
  // Killed by the gateway itself, with calls answered, open, and not yet begun.
  gateway.answer = () => {
    if (gateway.calls.length < 10) return 200
    if (!isKilled) children[0]!.kill('SIGKILL')
    isKilled = true
    return new Promise(() => {})
  }
  const first = startDaemonProcess()
  expect(await endOf(first)).toBe('SIGKILL')
  const knex = db.database.knex
  const marked = await knex('messages').whereNotNull('sent_at')
  expect(marked.length).toBeLessThanOrEqual(10)

  gateway.answer = () => 200
  const takenBefore = gateway.taken.length
  const second = startDaemonProcess()
  // Those that the dead daemon had claimed; the others are due already.
  await knex('messages').whereNotNull('due_at').update({ due_at: world.clock.now() })
  const sent = async () => (await knex('messages').whereNotNull('sent_at')).length
  const allSent = expect.poll(sent, { timeout: 40_000 }).toBe(ids.length)
  expect(await Promise.race([allSent.then(() => 'all sent'), endOf(second)])).toBe('all sent')
  expect([...new Set(gateway.taken)].sort()).toEqual(ids.sort())
  // Twice: what the gateway had taken and the dead daemon could not mark any more.
  expect(gateway.taken.length - ids.length).toBeLessThanOrEqual(takenBefore - marked.length)
}, 60_000)
