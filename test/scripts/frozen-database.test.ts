/**
 * What the probes and metrics of both processes say while their database is frozen, gone, or out of reach without a word: the
 * truth, soon, and without waiting for it. On a server of its own, which can be stopped, behind proxies.
 */
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { CrashServer } from '../../scripts/crash/crash-server.ts'
import { startDatabaseProxy, type DatabaseProxy, type ProxyMode } from '../../scripts/crash/database-proxy.ts'
import { monotonicMs } from '../../src/clock.ts'
import { startApiProcess, type ApiProcess } from '../support/api-process.ts'
import { daemonProcesses, type DaemonProcesses } from '../support/daemon-process.ts'
import { SECRETS_KEY } from '../support/delivery-world.ts'
import { freePort } from '../support/free-port.ts'
import { scrape } from '../support/scrape.ts'

vi.setConfig({ testTimeout: 90_000, hookTimeout: 90_000 })

/** Two and ten seconds are what a load balancer has a right to; longer on a machine that does other things. Statements are given up after 4 s. */
const DOWN_WITHIN_MS = 1.75 * 2000
const UP_WITHIN_MS = 3 * 10_000
/** Far above what an answer from memory takes, far below what waiting for the database takes. */
const AT_ONCE_MS = 500

let server: CrashServer
let proxies: DatabaseProxy[]
let api: ApiProcess
let daemons: DaemonProcesses
let apiMetrics: number
let daemonPort: number
let probes: { name: string; url: string }[]

beforeAll(async () => {
  server = await CrashServer.start()
  const mysqlUrl = await server.newDatabase()
  proxies = [await startDatabaseProxy(mysqlUrl), await startDatabaseProxy(mysqlUrl)]
  apiMetrics = await freePort()
  daemonPort = await freePort()
  const secretsKey = SECRETS_KEY.toString('base64')
  api = await startApiProcess({
    mysqlUrl: proxies[0]!.mysqlUrl,
    dataDir: server.folder,
    secretsKey,
    env: { METRICS_PORT: String(apiMetrics), LOG_LEVEL: 'silent' },
  })
  daemons = daemonProcesses(proxies[1]!.mysqlUrl, server.tls.caFile)
  const daemon = await daemons.start({ DAEMON_PORT: String(daemonPort), LOG_LEVEL: 'silent' })
  expect(daemon.exitCode).toBeNull()
  probes = [
    { name: 'the API', url: api.baseUrl },
    { name: 'the daemon', url: `http://127.0.0.1:${daemonPort}` },
  ]
})
afterAll(async () => {
  await api.kill()
  daemons.close()
  for (const proxy of proxies) proxy.close()
  await server.close()
})

async function ask(url: string) {
  const askedAtMs = monotonicMs()
  const response = await fetch(url)
  const body = (await response.json()) as object
  return { status: response.status, tookMs: monotonicMs() - askedAtMs, body: JSON.stringify(body) }
}

/** Asks again and again; `/livez` is 200 all the while. @returns after how long it was so */
async function turned(url: string, status: number, withinMs: number): Promise<number> {
  const sinceMs = monotonicMs()
  for (;;) {
    expect((await ask(`${url}/livez`)).status).toBe(200)
    const ready = await ask(`${url}/readyz`)
    if (ready.status === status) return monotonicMs() - sinceMs
    expect(monotonicMs() - sinceMs).toBeLessThan(withinMs)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

const allTurned = (status: number, withinMs: number): Promise<number[]> =>
  Promise.all(probes.map(({ url }) => turned(url, status, withinMs)))

const pass = (mode: ProxyMode) => async () => {
  for (const proxy of proxies) proxy.mode = mode
}

const FAULTS: [what: string, fail: () => Promise<void>, mend: () => Promise<void>][] = [
  [
    'frozen',
    async () => void process.kill(server.pid, 'SIGSTOP'),
    async () => void process.kill(server.pid, 'SIGCONT'),
  ],
  ['gone', () => server.kill(), () => server.restart()],
  // New connections are accepted and never greeted.
  ['in a black hole', pass('hold'), pass('pass')],
  ['deaf: it takes what it is asked and answers nothing', pass('deaf'), pass('pass')],
]

describe.each(FAULTS)('while the database is %s', (_, fail, mend) => {
  test('both processes live, say soon that they are not ready, answer at once, and are ready again when it is back', async () => {
    await allTurned(200, UP_WITHIN_MS)
    await fail()
    const down = await allTurned(503, DOWN_WITHIN_MS)
    for (const { url } of probes) {
      const answers = []
      for (let i = 0; i < 9; i++) answers.push(await ask(`${url}/readyz`))
      for (const { body } of answers) expect(body).toContain('the database does not answer')
      expect(answers.map(({ tookMs }) => tookMs).sort((a, b) => a - b)[4]).toBeLessThan(AT_ONCE_MS)
    }
    const [ofApi, ofDaemon] = await Promise.all([scrape(apiMetrics), scrape(daemonPort)])
    for (const samples of [ofApi, ofDaemon]) {
      expect([samples.get('lis_ready'), samples.get('lis_database_up')]).toEqual([0, 0])
      expect(samples.has('nodejs_eventloop_lag_p99_seconds')).toBe(true)
    }
    await mend()
    const up = await allTurned(200, UP_WITHIN_MS)
    console.log(`ready: down after ${down.map(Math.round)} ms, up after ${up.map(Math.round)} ms (API, daemon)`)
  })
})
