/**
 * The API on a free port with a database of its own, and a client that holds every answer to the contract.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { Agent, request, type Server } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Writable } from 'node:stream'
import { connectDatabase, type Database } from '../../db/connection.ts'
import { createApp } from '../../src/app.ts'
import { createAccessTokens, type AccessTokens } from '../../src/auth/access-token.ts'
import { deriveKeys, type Keys } from '../../src/crypto.ts'
import { createHttpServer, drain, listen } from '../../src/http-server.ts'
import { createLogger } from '../../src/logger.ts'
import { createPatientTokens, type PatientTokens } from '../../src/patients/patient-token.ts'
import type { OutgoingSms } from '../../src/patients/sms-gateway.ts'
import { SmsSender } from '../../src/patients/sms-sender.ts'
import { RequestCounts } from '../../src/metrics-requests.ts'
import { referenceDirOf } from '../../src/reference-pages.ts'
import { openReportStore, type ReportStore } from '../../src/reports/report-store.ts'
import { createAddressPolicy } from '../../src/webhooks/endpoint-address.ts'
import { Canaries } from './canaries.ts'
import { ContractChecker, type Answer } from './contract-checker.ts'
import { openTestDatabase } from './database.ts'
import { TestClock } from './test-clock.ts'

export interface CallOptions {
  token?: string | undefined
  /** Sent as JSON. */
  body?: unknown
  /** Sent as it is. */
  rawBody?: string | Buffer
  headers?: Record<string, string>
  query?: Record<string, string | undefined>
  /** The query as it is, with its question mark. */
  search?: string
}

export interface TestApp {
  port: number
  database: Database
  mysqlUrl: string
  clock: TestClock
  keys: Keys
  accessTokens: AccessTokens
  patientTokens: PatientTokens
  dataDir: string
  reportStore: ReportStore
  smsSender: SmsSender
  /** What the SMS gateway has taken so far; it takes nothing while `down` is true. */
  sms: { taken: OutgoingSms[]; down: boolean }
  readiness: { fault: string | undefined; isDraining: boolean }
  /** How often the daemons were told that something is to be done. */
  hints: () => number
  /** Everything logged so far. */
  logs: () => Record<string, unknown>[]
  call(method: string, path: string, options?: CallOptions): Promise<Answer & { body: any }>
  /** @throws when something of a patient that a call had, or a secret that an answer had, stands in a log line */
  close(): Promise<void>
}

export const client = new ContractChecker('client.yaml')
export const operator = new ContractChecker('operator.yaml')

export interface TestAppOptions {
  now?: string
  accessTokenTtlSeconds?: number
  serves?: { client: boolean; operator: boolean }
  /** CRM calls that an account may make in a minute. Most tests make more than the 60 of the service. */
  crmCalls?: number
  reportMaxBytes?: number
  mostWaiting?: number
  /** Of a server that does not answer; left out: a database of the app's own. */
  mysqlUrl?: string
}

export async function startTestApp(options: TestAppOptions = {}): Promise<TestApp> {
  const opened = options.mysqlUrl === undefined ? await openTestDatabase() : connectElsewhere(options.mysqlUrl)
  const { database, mysqlUrl, close: closeDatabase } = opened
  const clock = new TestClock(options.now ?? '2026-11-20T10:15:00.000Z')
  const keys = deriveKeys(Buffer.alloc(32, 7))
  const readiness = { fault: undefined as string | undefined, isDraining: false }
  const lines: string[] = []
  const stream = new Writable({
    write: (chunk, _, done) => {
      lines.push(String(chunk))
      done()
    },
  })
  const accessTokenTtlSeconds = options.accessTokenTtlSeconds ?? 600
  const serves = options.serves ?? { client: true, operator: true }
  let hints = 0
  const dataDir = mkdtempSync(join(tmpdir(), 'lis-app-'))
  const logger = createLogger('api', 'debug', stream)
  const reportStore = openReportStore(dataDir, options.reportMaxBytes ?? 20 * 1024 * 1024)
  const sms = { taken: [] as OutgoingSms[], down: false }
  const gateway = {
    send: async (message: OutgoingSms) => {
      if (sms.down) throw new Error('the gateway is down')
      sms.taken.push(message)
    },
  }
  const smsSender = new SmsSender({ knex: database.knex, clock, keys, logger, gateway, spreadMs: 0 })
  const app = await createApp({
    database,
    clock,
    keys,
    readiness,
    accessTokenTtlSeconds,
    crmCalls: options.crmCalls ?? 500,
    mostWaiting: options.mostWaiting,
    logger,
    reportStore,
    referenceDir: referenceDirOf(dataDir),
    requests: new RequestCounts(),
    reportMaxBytes: options.reportMaxBytes ?? 20 * 1024 * 1024,
    retention: { payloadRetentionDays: 30, logRetentionDays: 90 },
    smsSender,
    baseUrl: () => `http://127.0.0.1:${port}`,
    addressPolicy: createAddressPolicy(),
    // What is foretold is told once more when it is committed.
    hint: (kind) => (hints += Number(kind !== 'committing')),
    serves,
  })
  const server = createHttpServer(app)
  const port = await listen(server, 0, '127.0.0.1')
  const agent = new Agent({ keepAlive: true, maxSockets: 128 })
  const canaries = new Canaries()
  return {
    port,
    database,
    mysqlUrl,
    clock,
    keys,
    readiness,
    accessTokens: createAccessTokens(keys, clock, accessTokenTtlSeconds),
    patientTokens: createPatientTokens(keys, clock),
    dataDir,
    reportStore,
    smsSender,
    sms,
    hints: () => hints,
    logs: () => lines.map((line) => JSON.parse(line)),
    call: async (method, path, callOptions = {}) => {
      for (const sent of [callOptions.body, callOptions.query]) canaries.noteBody(sent)
      const answer = await send(agent, port, method, path, callOptions)
      canaries.noteAnswer(answer.body)
      if (path.startsWith('/client/') && serves.client) client.check(method, path, answer)
      if (path.startsWith('/operator/') && serves.operator) operator.check(method, path, answer)
      return answer
    },
    close: async () => {
      await closeServer(server, agent)
      await smsSender.stop()
      rmSync(dataDir, { recursive: true, force: true })
      await closeDatabase()
      canaries.requireNoneIn(lines)
    },
  }
}

function connectElsewhere(mysqlUrl: string) {
  const database = connectDatabase(mysqlUrl)
  return { database, mysqlUrl, close: () => database.close() }
}

async function closeServer(server: Server, agent: Agent): Promise<void> {
  agent.destroy()
  await drain(server, 1000)
}

function send(agent: Agent, port: number, method: string, path: string, options: CallOptions): Promise<Answer> {
  const { token, body, rawBody, headers = {}, query = {} } = options
  const payload = rawBody ?? (body === undefined ? undefined : JSON.stringify(body))
  const isChunked = 'transfer-encoding' in headers
  const length = String(Buffer.byteLength(payload ?? ''))
  const sentQuery = Object.entries(query).filter((entry): entry is [string, string] => entry[1] !== undefined)
  const search = options.search ?? (sentQuery.length === 0 ? '' : `?${new URLSearchParams(sentQuery)}`)
  return new Promise((resolve, reject) => {
    const outgoing = request(
      {
        agent,
        port,
        method,
        host: '127.0.0.1',
        path: `${path}${search}`,
        headers: {
          ...(payload === undefined
            ? {}
            : { 'content-type': 'application/json', ...(isChunked ? {} : { 'content-length': length }) }),
          ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
          ...headers,
        },
      },
      (incoming) => {
        const chunks: Buffer[] = []
        incoming.on('data', (chunk) => chunks.push(chunk))
        incoming.on('error', reject)
        incoming.on('end', () => {
          const text = Buffer.concat(chunks).toString('utf8')
          const answerBody = text === '' ? undefined : JSON.parse(text)
          resolve({ status: incoming.statusCode!, headers: incoming.headers, body: answerBody })
        })
      },
    )
    outgoing.on('error', reject)
    outgoing.end(payload)
  })
}
