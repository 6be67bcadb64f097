/**
 * A real API and a real daemon at the level debug, with everything around them that they talk to: receivers, gateways, a mail
 * server, a collector of traces. Shown as a `TestApp`, so that the calls of the other tests serve here, too; each of them goes
 * through a book of canaries.
 */
import { randomBytes } from 'node:crypto'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { vi } from 'vitest'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { startService, type Service } from '../../scripts/service-process.ts'
import { createAccessTokens } from '../../src/auth/access-token.ts'
import { monotonicMs } from '../../src/clock.ts'
import { deriveKeys } from '../../src/crypto.ts'
import { client, operator, type CallOptions, type TestApp } from '../support/app.ts'
import type { Answer } from '../support/contract-checker.ts'
import { openTestDatabase } from '../support/database.ts'
import { startSmtpServer, type TestSmtpServer } from '../support/smtp.ts'
import { TestClock } from '../support/test-clock.ts'
import { createTestTls } from '../support/tls.ts'
import { Canaries } from '../support/canaries.ts'
import { startHostileGateways, type HostileGateways } from './hostile-gateways.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const SMS_TIMEOUT_MS = 10_000
/** It does nothing to a process that does not ask for it. */
const HEAP_SIGNAL = 'SIGWINCH'

export interface RealService {
  /** Its parts that a process of its own has are not there. */
  app: TestApp
  canaries: Canaries
  receiver: HttpsReceiver
  gateways: HostileGateways
  smtp: TestSmtpServer
  /** Every answer of 400 and up. */
  refusals: { call: string; body: unknown }[]
  /** How many answers have handed a secret out. */
  timesShown: Map<string, number>
  dataDir: string
  processes: { api: Service; daemon: Service }
  /** Everything that a process has written. */
  outputOf(name: 'api' | 'daemon'): string
  metricsOf(name: 'api' | 'daemon'): Promise<string>
  /** Each job as the daemon's embedded store has kept it, a line each. */
  jobs(): string
  /** Every text that the process holds after a collection of garbage. */
  heapOf(name: 'api' | 'daemon'): Promise<string[]>
  close(): Promise<void>
}

/** @param env of both processes, besides what makes them find each other */
export async function startRealService(env: Record<string, string>): Promise<RealService> {
  const canaries = new Canaries()
  const tls = await createTestTls()
  const opened = await openTestDatabase()
  const dataDir = mkdtempSync(join(tmpdir(), 'lis-secrecy-'))
  const logs = mkdtempSync(join(tmpdir(), 'lis-secrecy-logs-'))
  const smtp = await startSmtpServer()
  smtp.refusing = true
  // The first try of every SMS and message is refused, and every answer repeats what was sent.
  const gateways = await startHostileGateways((_, before) => (before === 0 ? 500 : 200))
  const receiver = await startHttpsReceiver(tls, ({ path, headers, body }) => ({
    status: path === '/down' ? 500 : 200,
    headers: { 'content-type': 'text/plain', 'x-said-back': String(headers['webhook-signature']) },
    body: body.toString('utf8'),
  }))
  const secretsKey = randomBytes(32)
  canaries.addSecret('SECRETS_KEY', secretsKey.toString('base64'))
  const crashCanary = canaries.plant('crash')
  const shared = {
    ...process.env,
    NODE_ENV: 'test',
    MYSQL_URL: opened.mysqlUrl,
    SECRETS_KEY: secretsKey.toString('base64'),
    DATA_DIR: dataDir,
    PORT: '0',
    DAEMON_PORT: '0',
    METRICS_PORT: '0',
    LOG_LEVEL: 'debug',
    DELIVERY_CA_FILE: tls.caFile,
    // Nobody else's endpoint is asked for: no name server answers there.
    DELIVERY_DNS_SERVERS: '127.0.0.1:1',
    SMTP_URL: smtp.url,
    SMS_GATEWAY_URL: `${gateways.url}/sms`,
    MESSAGE_GATEWAY_URL: `${gateways.url}/messages`,
    OTEL_EXPORTER_OTLP_ENDPOINT: gateways.url,
    NODE_OPTIONS: [
      ...['crash-on-signal.ts', 'watch-jobs.ts'].map((name) => `--import=${join(import.meta.dirname, name)}`),
      `--heapsnapshot-signal=${HEAP_SIGNAL}`,
      `--diagnostic-dir=${logs}`,
    ].join(' '),
    CRASH_CANARY: crashCanary,
    JOBS_FILE: join(logs, 'jobs'),
    ...env,
  }
  const start = (name: 'api' | 'daemon', script: string) =>
    startService(`the ${name}`, join(ROOT, script), shared, join(logs, name))
  const processes = { api: start('api', 'src/server.ts'), daemon: start('daemon', 'daemon/main.ts') }
  const [port, daemonPort] = await Promise.all([processes.api.listening(), processes.daemon.listening()])
  const outputOf = (name: 'api' | 'daemon') => readFileSync(join(logs, name), 'utf8')
  const metricsPort = await vi.waitFor(() => {
    const line = linesOf(outputOf('api')).find(({ event }) => event === 'api.metrics_listening')
    if (!line) throw new Error(outputOf('api'))
    return line.port
  })
  const refusals: RealService['refusals'] = []
  const timesShown = new Map<string, number>()
  const keys = deriveKeys(secretsKey)
  const clock = new TestClock(new Date(await opened.database.readTimeMs()).toISOString())

  const call = async (method: string, path: string, options: CallOptions = {}) => {
    const operation = client.operationOf(method, path) ?? operator.operationOf(method, path)
    const sent = { ...options, body: canaries.plantInBody(operation, options.body) }
    if (options.token !== undefined) canaries.addSecret('token', options.token)
    const answer = await send(`http://127.0.0.1:${port}`, method, path, sent)
    canaries.noteAnswer(answer.body)
    if (answer.status >= 400)
      refusals.push({ call: `${method} ${operation?.path} ${answer.status}`, body: answer.body })
    const { data, secret = data?.secret, clientSecret, key } = (answer.body ?? {}) as Record<string, any>
    for (const shown of [secret, clientSecret, key]) {
      if (typeof shown === 'string') timesShown.set(shown, (timesShown.get(shown) ?? 0) + 1)
    }
    return answer
  }

  /** Waits until each code that was asked for has been tried to send, which is enough to read it. */
  const settle = async () => {
    for (const untilMs = monotonicMs() + SMS_TIMEOUT_MS; monotonicMs() < untilMs; await sleep(10)) {
      const rows = await opened.database.knex('sms_messages').select('content', 'tries')
      const tries = rows.reduce((sum, row) => sum + row.tries, 0)
      if (rows.every((row) => row.content === null || row.tries > 0) && gateways.texts().length >= tries) break
    }
    for (const { to, text } of gateways.texts()) {
      canaries.addDigits('patient', 'contact', to)
      canaries.addDigits('secret', 'otp', text.slice(0, 6))
    }
  }

  const app = {
    port,
    database: opened.database,
    mysqlUrl: opened.mysqlUrl,
    clock,
    keys,
    accessTokens: createAccessTokens(keys, clock, 600),
    dataDir,
    smsSender: { settle },
    sms: { get taken() { return gateways.texts() } },
    call,
  } as unknown as TestApp // prettier-ignore
  return {
    app,
    canaries,
    receiver,
    gateways,
    smtp,
    refusals,
    timesShown,
    dataDir,
    processes,
    outputOf,
    metricsOf: async (name) => {
      const answer = await fetch(`http://127.0.0.1:${name === 'api' ? metricsPort : daemonPort}/metrics`)
      return answer.text()
    },
    jobs: () => readFileSync(join(logs, 'jobs'), 'utf8'),
    heapOf: async (name) => {
      const { pid } = processes[name]
      process.kill(pid, HEAP_SIGNAL)
      return vi.waitFor(() => readWholeHeap(logs, pid), { timeout: 60_000, interval: 500 })
    },
    close: async () => {
      await Promise.all([processes.api.stop(), processes.daemon.stop()])
      await Promise.all([receiver.close(), smtp.close()])
      gateways.close()
      for (const folder of [dataDir, logs]) rmSync(folder, { recursive: true, force: true })
      tls.remove()
      await opened.close()
    },
  }
}

/** @throws while it is being written */
function readWholeHeap(folder: string, pid: number): string[] {
  const file = readdirSync(folder).find(
    (name) => name.endsWith('.heapsnapshot') && name.split('.').includes(String(pid)),
  )
  if (!file) throw new Error('no snapshot yet')
  const text = readFileSync(join(folder, file), 'utf8')
  if (!text.trimEnd().endsWith(']}')) throw new Error('the snapshot is not whole yet')
  return JSON.parse(text).strings.map(withoutNumbersOfObjects)
}

/** What a snapshot says of an entry of a WeakMap. It numbers its objects: one of hundreds is a one-time password's number now and then. */
function withoutNumbersOfObjects(text: string): string {
  return / pair in WeakMap \(table @\d+\)$/.test(text) ? text.replace(/ @\d+\)/g, ')') : text
}

async function send(baseUrl: string, method: string, path: string, options: CallOptions): Promise<Answer> {
  const { token, body, rawBody, headers = {}, query = {} } = options
  const payload = rawBody ?? (body === undefined ? undefined : JSON.stringify(body))
  const sent = Object.entries(query).filter((entry): entry is [string, string] => entry[1] !== undefined)
  const search = options.search ?? (sent.length === 0 ? '' : `?${new URLSearchParams(sent)}`)
  const response = await fetch(`${baseUrl}${path}${search}`, {
    method,
    headers: {
      ...(payload === undefined ? {} : { 'content-type': 'application/json' }),
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      ...headers,
    },
    ...(payload === undefined ? {} : { body: payload as string }),
  })
  const text = await response.text()
  const isJson = response.headers.get('content-type')?.startsWith('application/json')
  return {
    status: response.status,
    headers: Object.fromEntries(response.headers),
    body: text === '' || !isJson ? undefined : JSON.parse(text),
  }
}

/** Lines of a log; what is no line of ours has none of the fields. */
export function linesOf(output: string): Record<string, unknown>[] {
  return output.split('\n').flatMap((line) => {
    try {
      return [JSON.parse(line)]
    } catch {
      return []
    }
  })
}
