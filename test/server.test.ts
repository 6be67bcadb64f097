import { spawn, type ChildProcess } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { createConnection, createServer, type AddressInfo, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { createEmptyDatabase, openTestDatabase, type TestDatabase } from './support/database.ts'

const SERVER = join(import.meta.dirname, '..', 'src', 'server.ts')

let testDatabase: TestDatabase
let dataDir: string
const started: ChildProcess[] = []

beforeAll(async () => {
  testDatabase = await openTestDatabase()
  dataDir = mkdtempSync(join(tmpdir(), 'lis-server-'))
})
afterEach(() => {
  for (const child of started.splice(0)) child.kill('SIGKILL')
})
afterAll(async () => {
  rmSync(dataDir, { recursive: true, force: true })
  await testDatabase.close()
})

interface Running {
  child: ChildProcess
  output: { stdout: string; stderr: string }
  /** Resolves with the port, or undefined when the process ends without one. */
  port: Promise<number | undefined>
  exit: Promise<number | null>
}

function start(env: Record<string, string> = {}): Running {
  const child = spawn(process.execPath, [SERVER], {
    env: { PATH: process.env.PATH, MYSQL_URL: testDatabase.mysqlUrl, DATA_DIR: dataDir, PORT: '0', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  started.push(child)
  const output = { stdout: '', stderr: '' }
  child.stderr!.on('data', (chunk) => (output.stderr += chunk))
  const exit = new Promise<number | null>((resolve) => child.on('close', resolve))
  const port = new Promise<number | undefined>((resolve) => {
    child.stdout!.on('data', (chunk) => {
      output.stdout += chunk
      const match = /^listening (\d+)\n/.exec(output.stdout)
      if (match) resolve(Number(match[1]))
    })
    void exit.then(() => resolve(undefined))
  })
  return { child, output, port, exit }
}

const statusOf = async (port: number, path: string) => (await fetch(`http://127.0.0.1:${port}${path}`)).status

test('the server says where it listens in one line, is ready, and ends with 0 on SIGTERM', async () => {
  const server = start()
  const port = (await server.port)!
  expect(await statusOf(port, '/readyz')).toBe(200)
  expect(await statusOf(port, '/operator/accounts')).toBe(401)
  server.child.kill('SIGTERM')
  expect(await server.exit).toBe(0)
  expect(server.output.stdout).toBe(`listening ${port}\n`)
  const events = server.output.stderr
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line).event)
  expect(events).toEqual(['api.listening', 'request.completed', 'request.completed', 'api.draining', 'api.stopped'])
})

test('a request that is running when the server is told to stop is answered, and its connection ends', async () => {
  const server = start()
  const port = (await server.port)!
  const body = JSON.stringify({ clientID: 'x', clientSecret: 'y' })
  const { socket, answer } = await open(port)
  const idle = await open(port)
  socket.write(
    `POST /client/auth/token HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body.slice(0, 5)}`,
  )
  const kept = await open(port)
  kept.socket.write('GET /livez HTTP/1.1\r\nHost: x\r\n\r\n')
  await new Promise((resolve) => kept.socket.once('data', resolve))
  server.child.kill('SIGTERM')
  // Neither the connection that was never used nor the one that is kept alive holds the stop up.
  expect(await idle.answer).toBe('')
  expect(await kept.answer).toMatch(/^HTTP\/1.1 200 [^]*keep-alive/i)
  await expect(fetch(`http://127.0.0.1:${port}/livez`)).rejects.toThrow()
  socket.write(body.slice(5))
  expect(await answer).toMatch(/^HTTP\/1.1 401 [^]*Connection: close[^]*invalid client credentials/)
  expect(await server.exit).toBe(0)
})

test('connections that wait to be accepted when the server is told to stop are served', async () => {
  const server = start()
  const port = (await server.port)!
  expect(await statusOf(port, '/livez')).toBe(200)
  server.child.kill('SIGSTOP')
  // The kernel connects them all; the server has not heard of one of them.
  const waiting = await Promise.all(Array.from({ length: 40 }, () => open(port)))
  for (const { socket } of waiting) socket.write('GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')
  server.child.kill('SIGTERM')
  server.child.kill('SIGCONT')
  for (const { answer } of waiting) expect(await answer).toMatch(/^HTTP\/1.1 200 /)
  expect(await server.exit).toBe(0)
})

test('with OPERATOR_PORT the operator has a listener of its own, and the public port does not know it', async () => {
  const operatorPort = await freePort()
  const server = start({ OPERATOR_PORT: String(operatorPort) })
  const port = (await server.port)!
  expect(await statusOf(port, '/operator/accounts')).toBe(404)
  expect(await statusOf(operatorPort, '/operator/accounts')).toBe(401)
  expect(await statusOf(operatorPort, '/client/labs')).toBe(404)
  server.child.kill('SIGTERM')
  expect(await server.exit).toBe(0)
})

test('with REUSE_PORT two servers share a port, and when one stops the other answers', async () => {
  const shared = { PORT: String(await freePort()), REUSE_PORT: 'true' }
  const [staying, leaving] = [start(shared), start(shared)]
  const port = (await staying.port)!
  expect(await leaving.port).toBe(port)
  let gone = false
  const answered = { staying: 0, leaving: 0 }
  // A connection that the kernel had queued for the one that leaves may be reset before it is accepted. No request was
  // taken over it, and a client connects again, as any does.
  let resets = 0
  const ask = () => fetch(`http://127.0.0.1:${port}/livez`, { headers: { connection: 'close' } })
  const knock = async () => {
    // Each over a connection of its own: until it has stopped some of them go to the one that leaves.
    while (!gone) {
      const { status } = await ask().catch(() => (resets++, ask()))
      expect(status).toBe(200)
      answered[leaving.child.exitCode === null ? 'leaving' : 'staying'] += 1
    }
  }
  const knocking = Promise.all(Array.from({ length: 8 }, knock))
  while (answered.leaving < 50) await new Promise((resolve) => setTimeout(resolve, 10))
  leaving.child.kill('SIGTERM')
  expect(await leaving.exit).toBe(0)
  while (answered.staying < 50) await new Promise((resolve) => setTimeout(resolve, 10))
  gone = true
  await knocking
  // Not one each, which a server that refuses would bring about.
  expect(resets).toBeLessThanOrEqual(8)
})

test('what keeps it from starting is said in one line, with exit 1 and nothing on stdout', async () => {
  const taken = createServer()
  const takenPort = await new Promise<number>((resolve) => {
    taken.listen(0, '127.0.0.1', () => resolve((taken.address() as AddressInfo).port))
  })
  const empty = await createEmptyDatabase()
  const nowhere = 'mysql://root:hunter2@localhost/lis?socketPath=/nowhere.sock'
  const cases: [Record<string, string>, RegExp][] = [
    [
      { PORT: String(takenPort) },
      new RegExp(`^port ${takenPort} on 127.0.0.1 is taken: stop what uses it, or set PORT [^\n]*\n$`),
    ],
    [{ HOST: '192.0.2.1' }, /^192.0.2.1 is no address of this machine: correct HOST\n$/],
    [
      { METRICS_PORT: '0', METRICS_HOST: '192.0.2.1' },
      /^192.0.2.1 is no address of this machine: correct METRICS_HOST\n$/,
    ],
    [{ MYSQL_URL: nowhere }, /^no database answers at \/nowhere.sock \(ENOENT\): start it, or correct MYSQL_URL\n$/],
    [{ MYSQL_URL: empty.mysqlUrl }, /^the database schema is not current: run make migrate\n$/],
    [{ PORT: 'http' }, /^the settings can't be used:\n {2}- PORT must be a whole number[^\n]*\n$/],
  ]
  for (const [env, said] of cases) {
    const server = start(env)
    expect(await server.exit).toBe(1)
    expect(server.output.stdout).toBe('')
    expect(server.output.stderr).toMatch(said)
  }
  await empty.drop()
  await new Promise((resolve) => taken.close(resolve))
})

async function open(port: number): Promise<{ socket: Socket; answer: Promise<string> }> {
  const socket = createConnection(port, '127.0.0.1')
  await new Promise((resolve) => socket.once('connect', resolve))
  let text = ''
  socket.on('data', (chunk) => (text += chunk))
  socket.on('error', (error) => (text += error.message))
  return { socket, answer: new Promise((resolve) => socket.once('close', () => resolve(text))) }
}

async function freePort(): Promise<number> {
  const server = createServer()
  return new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address() as AddressInfo
      server.close(() => resolve(port))
    })
  })
}
