import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { afterAll, afterEach, expect, test } from 'vitest'
import { findByArgument, identify, isAlive, type ProcessIdentity } from '../../scripts/processes.ts'
import { freePort } from '../support/free-port.ts'

const SCRIPT = join(import.meta.dirname, '..', '..', 'scripts', 'run.ts')
const dataDir = mkdtempSync(join(tmpdir(), 'lis-run-'))

interface Run {
  child: ChildProcess
  /** Its output so far. */
  lines: string[]
  /** @returns the ready line, or undefined when the run ends without one */
  ready: Promise<string | undefined>
  /** The exit code, or the signal. */
  ended: Promise<number | string>
}

const runs: Run[] = []

function run(env: Record<string, string> = {}): Run {
  const { MYSQL_URL: _mysql, MYSQL_MIGRATE_URL: _migrate, MYSQL_DAEMON_URL: _daemon, ...rest } = process.env
  const child = spawn(process.execPath, [SCRIPT], {
    env: { ...rest, DATA_DIR: dataDir, PORT: '0', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const lines: string[] = []
  const ready = new Promise<string | undefined>((resolve) => {
    const read = (line: string) => {
      lines.push(line)
      if (line.startsWith('ready: ')) resolve(line)
    }
    createInterface({ input: child.stdout }).on('line', read)
    createInterface({ input: child.stderr }).on('line', read)
    child.on('close', () => resolve(undefined))
  })
  const ended = once(child, 'close').then(([code, signal]) => signal ?? code)
  const started = { child, lines, ready, ended }
  runs.push(started)
  return started
}

/** What the run has started, by its own book. */
function childrenOf(folder: string): { api: ProcessIdentity; daemon: ProcessIdentity; database: ProcessIdentity } {
  const { children } = JSON.parse(readFileSync(join(folder, 'run.json'), 'utf8'))
  const [database] = findByArgument(`--datadir=${join(folder, 'mysql')}`)
  return { api: children[0], daemon: children[1], database: database! }
}

const demo = () => JSON.parse(readFileSync(join(dataDir, 'demo.json'), 'utf8'))

async function untilGone(processes: ProcessIdentity[]): Promise<void> {
  while (processes.some(isAlive)) await new Promise((resolve) => setTimeout(resolve, 20))
}

afterEach(async () => {
  for (const { child, ended } of runs.splice(0)) {
    child.kill('SIGTERM')
    await ended
  }
})

afterAll(() => rmSync(dataDir, { recursive: true, force: true }))

test('everything serves when the ready line is printed; SIGTERM leaves nothing running; a second start keeps everything', async () => {
  const first = run()
  const line = await first.ready
  const { baseUrl, partyScoped } = demo()
  expect(line).toContain(`ready: ${baseUrl} daemon=http://127.0.0.1:`)
  expect(line).toContain(`demo=${dataDir}/demo.json`)
  expect((await fetch(`${baseUrl}/readyz`)).status).toBe(200)
  expect((await fetch(`${/daemon=(\S+)/.exec(line!)![1]}/readyz`)).status).toBe(200)
  const children = Object.values(childrenOf(dataDir))
  expect(children.every(isAlive)).toBe(true)

  first.child.kill('SIGTERM')
  expect(await first.ended).toBe(0)
  expect(children.some(isAlive)).toBe(false)
  expect(existsSync(join(dataDir, 'mysql.sock'))).toBe(false)
  expect(existsSync(join(dataDir, 'run.json'))).toBe(false)

  expect(demo()).not.toHaveProperty('operatorUrl')

  const operatorPort = await freePort()
  // What is on this machine is not asked by way of the environment's proxy.
  const proxy = { NODE_USE_ENV_PROXY: '1', HTTP_PROXY: `http://127.0.0.1:${await freePort()}` }
  const second = run({ OPERATOR_PORT: String(operatorPort), ...proxy })
  await second.ready
  expect(demo().partyScoped).toEqual(partyScoped)
  expect(demo().operatorUrl).toBe(`http://127.0.0.1:${operatorPort}`)
  const accounts = await fetch(`${demo().operatorUrl}/operator/accounts`, {
    headers: { authorization: `Bearer ${demo().operatorKey}` },
  })
  expect(accounts.status).toBe(200)
  const token = await fetch(`${demo().baseUrl}/client/auth/token`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ clientID: partyScoped.clientID, clientSecret: partyScoped.clientSecret }),
  })
  expect(token.status).toBe(200)
})

test('a second run on the same data folder is refused with one line, and the first goes on', async () => {
  const first = run()
  await first.ready
  const second = run()
  expect(await second.ended).toBe(1)
  expect(second.lines).toEqual([
    `run: another \`make run\` (process ${first.child.pid}) uses this data folder: stop it, or set another DATA_DIR`,
  ])
  expect((await fetch(`${demo().baseUrl}/readyz`)).status).toBe(200)
})

test('a run.json of a newer version is refused with what to do, and is not touched', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'lis-run-'))
  const file = join(folder, 'run.json')
  writeFileSync(file, '{"version":2,"processes":[]}')
  const { ended, lines } = run({ DATA_DIR: folder })
  expect(await ended).toBe(1)
  expect(lines).toEqual([
    `run: ${file} was written by a newer version of this service: start that one, or remove the file when nothing of it runs any more`,
  ])
  expect(readFileSync(file, 'utf8')).toBe('{"version":2,"processes":[]}')
  rmSync(folder, { recursive: true, force: true })
})

test('after kill -9 of the supervisor the next start serves again', async () => {
  const first = run()
  await first.ready
  const children = Object.values(childrenOf(dataDir))
  first.child.kill('SIGKILL')
  await first.ended
  const second = run()
  expect(await second.ready).toContain('ready: ')
  await untilGone(children)
  expect((await fetch(`${demo().baseUrl}/readyz`)).status).toBe(200)
})

test('a database that is killed is started again, and the API and the daemon stay', async () => {
  const { ready, lines } = run()
  await ready
  const { api, daemon, database } = childrenOf(dataDir)
  process.kill(database.pid, 'SIGKILL')
  while (!lines.some((line) => line.includes('starting it again')))
    await new Promise((resolve) => setTimeout(resolve, 20))
  while ((await fetch(`${demo().baseUrl}/readyz`)).status !== 200)
    await new Promise((resolve) => setTimeout(resolve, 50))
  expect(isAlive(api) && isAlive(daemon)).toBe(true)
})

test('when the daemon dies the rest is stopped, the exit code says so and its last lines are shown', async () => {
  const { ready, lines, ended } = run()
  await ready
  const children = childrenOf(dataDir)
  process.kill(children.daemon.pid, 'SIGKILL')
  expect(await ended).toBe(1)
  expect(lines.join('\n')).toContain('run: the daemon ended unexpectedly (SIGKILL); the end of ')
  expect(lines.join('\n')).toContain('daemon.started')
  expect(Object.values(children).some(isAlive)).toBe(false)
})

test('a taken port, a bad setting and a database that is down are one clear line each, and nothing stays behind', async () => {
  const other = createServer().listen(0, '127.0.0.1')
  await once(other, 'listening')
  const { port } = other.address() as AddressInfo
  const taken = run({ PORT: String(port) })
  expect(await taken.ended).toBe(1)
  expect(taken.lines).toEqual([
    `run: port ${port} on 127.0.0.1 is taken: stop what uses it, or set PORT (0 takes a free one)`,
  ])
  other.close()

  const bad = run({ LOG_LEVEL: 'loud' })
  expect(await bad.ended).toBe(1)
  expect(bad.lines.join('\n')).toContain('LOG_LEVEL must be one of')

  const down = run({ MYSQL_URL: 'mysql://root@127.0.0.1:1/lis' })
  expect(await down.ended).toBe(1)
  expect(down.lines.at(-1)).toBe(
    'run: no database answers at 127.0.0.1:1 (ECONNREFUSED): start it, or correct MYSQL_URL',
  )
  expect(findByArgument(`--datadir=${join(dataDir, 'mysql')}`)).toEqual([])
  expect(existsSync(join(dataDir, 'run.json'))).toBe(false)
})

test('a signal in the middle of the first start ends it in order', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'lis-run-'))
  try {
    const { child, lines, ended } = run({ DATA_DIR: folder })
    while (!lines.some((line) => line.includes('making the database folder'))) {
      await new Promise((resolve) => setTimeout(resolve, 10))
    }
    child.kill('SIGINT')
    expect(await ended).toBe(0)
    expect(findByArgument(`--datadir=${join(folder, 'mysql')}`)).toEqual([])
    expect(identify(child.pid!)).toBeUndefined()
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})

test('a data folder that can not be made, or whose files can not, is one line that says what to do', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'lis-run-'))
  const file = join(folder, 'a file')
  writeFileSync(file, '')
  const SECRETS_KEY = Buffer.alloc(32, 7).toString('base64')
  const onFile = run({ DATA_DIR: file, SECRETS_KEY })
  expect(await onFile.ended).toBe(1)
  expect(onFile.lines).toEqual([
    `run: DATA_DIR: ${join(file, 'logs')} can't be written (ENOTDIR): see to it, or choose another folder`,
  ])
  writeFileSync(join(folder, 'logs'), '')
  const onLogs = run({ DATA_DIR: folder, SECRETS_KEY })
  expect(await onLogs.ended).toBe(1)
  expect(onLogs.lines).toEqual([
    `run: DATA_DIR: ${join(folder, 'logs')} can't be written (EEXIST): see to it, or choose another folder`,
  ])
  rmSync(folder, { recursive: true, force: true })
})
