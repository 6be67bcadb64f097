/**
 * Where patients' data and secrets must not be found: every field of a patient, every token, code and secret has a value that
 * occurs nowhere else, a real API and a real daemon at the level debug are asked for all that they can do, with everything
 * around them failing and talking back, and then everything that they have written is searched.
 *
 * MONGODB_URL, where set: the daemon keeps its jobs there, and they are searched, too.
 */
import { randomUUID } from 'node:crypto'
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { MongoClient } from 'mongodb'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { client, operator } from '../support/app.ts'
import { definitionsOf, join as joinPath, variantsOf, type Schema } from '../support/contract-arbitraries.ts'
import type { ContractChecker } from '../support/contract-checker.ts'
import { OTHER_FIELDS, PATIENT_FIELDS, SECRET_FIELDS } from '../support/canaries.ts'
import { decodeWords, parseMail } from '../support/parsed-mail.ts'
import { linesOf, startRealService, type RealService } from './real-service.ts'
import { callsOf, walkService } from './walk-service.ts'

/** Tables that hold patients' records, or what is sent about them. Everywhere else there is nothing of a patient. */
const PATIENTS_TABLES = new Set([
  'attempts', 'deliveries', 'earlier_attempts', 'bill_items', 'bills', 'entries', 'entry_items', 'event_bodies', 'messages', 'patients', 'pre_booking_items',
  'pre_bookings',
]) // prettier-ignore

const WITHOUT_MONGODB = 'skipped: MONGODB_URL names no server; the gate starts one with test/servers/ferretdb.sh'
if (!process.env.MONGODB_URL) console.log(WITHOUT_MONGODB)

const ROOT = join(import.meta.dirname, '..', '..')

let service: RealService
let mongodbUrl: string | undefined
/** As they stood in the job store: one that is done is removed. */
const jobs = new Set<string>()
/** Of each table, all its rows as bytes. */
let tables: Map<string, Buffer>

beforeAll(async () => {
  mongodbUrl = ownMongoUrl()
  service = await startRealService({
    RETRY_SCHEDULE: '0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5',
    WARN_AFTER_SECONDS: '2',
    WARN_BY_CLOCK_SECONDS: '3',
    DELETE_AFTER_SECONDS: '4',
    OTEL_BSP_SCHEDULE_DELAY: '500',
    ...(mongodbUrl ? { MONGODB_URL: mongodbUrl } : {}),
  })
  const stopWatching = mongodbUrl ? watchJobs() : async () => {}
  await walkService(service)
  await stopWatching()
  tables = await dumpTables()
}, 180_000)
afterAll(async () => {
  await service.close()
  if (mongodbUrl) await withMongo((mongo) => mongo.db().dropDatabase())
})

function ownMongoUrl(): string | undefined {
  if (!process.env.MONGODB_URL) return undefined
  const url = new URL(process.env.MONGODB_URL)
  url.pathname = `/lis_${randomUUID().slice(0, 8)}`
  return url.href
}

async function withMongo<T>(work: (mongo: MongoClient) => Promise<T>): Promise<T> {
  const mongo = await MongoClient.connect(mongodbUrl!)
  try {
    return await work(mongo)
  } finally {
    await mongo.close()
  }
}

/** @returns what ends it */
function watchJobs(): () => Promise<void> {
  let isOver = false
  const watched = withMongo(async (mongo) => {
    for (; !isOver; await sleep(20)) {
      for (const collection of await mongo.db().collections()) {
        for (const job of await collection.find().toArray()) jobs.add(JSON.stringify(job))
      }
    }
  })
  return async () => {
    isOver = true
    await watched
  }
}

async function dumpTables(): Promise<Map<string, Buffer>> {
  const { knex } = service.app.database
  const [names] = await knex.raw('SHOW TABLES')
  const dumped = new Map<string, Buffer>()
  for (const name of names.map((row: object) => String(Object.values(row)[0]))) {
    const rows: object[] = await knex(name)
    const cells = rows.flatMap((row) => Object.values(row)).map(bytesOf)
    dumped.set(name, Buffer.concat(cells.flatMap((cell) => [cell, Buffer.from('\n')])))
  }
  return dumped
}

function bytesOf(value: unknown): Buffer {
  if (value instanceof Buffer) return value
  return Buffer.from(typeof value === 'object' ? JSON.stringify(value) : String(value), 'utf8')
}

function filesBelow(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .map((name) => join(folder, name))
    .filter((path) => statSync(path).isFile())
}

/** Texts in the requests of a contract, by their paths in the body. */
function textFieldsOf(contract: ContractChecker): string[] {
  const definitions = definitionsOf(contract.document)
  const visit = (schema: Schema, path: string): string[] =>
    variantsOf(definitions.resolve(schema), definitions).flatMap((variant) => {
      if (variant.properties) return Object.entries(variant.properties).flatMap(([name, item]) => visit(item, joinPath(path, name))) // prettier-ignore
      if (variant.items) return visit(variant.items, `${path}[]`)
      const types = [variant.type].flat()
      return types.includes('string') || types.includes('object') || variant.enum ? [path] : []
    })
  return contract.operations.flatMap((operation) => {
    const { requestBody } = operation as { requestBody?: { content: Record<string, { schema: Schema }> } }
    const json = requestBody?.content['application/json']
    return json ? visit(json.schema, '') : []
  })
}

describe('what is searched for', () => {
  test('is in every text field of both contracts: each is known to be of a patient, a secret, or neither', () => {
    const known = new Set([...PATIENT_FIELDS, ...SECRET_FIELDS, ...OTHER_FIELDS])
    const fields = new Set([...textFieldsOf(client), ...textFieldsOf(operator)])
    expect([...fields].filter((field) => !known.has(field))).toEqual([])
    expect([...known].filter((field) => !fields.has(field))).toEqual([])
  })

  test('was taken in: it stands in the records, was delivered, and was sent as text and as message', () => {
    const { canaries, receiver, gateways } = service
    const stored = Buffer.concat([...PATIENTS_TABLES].map((name) => tables.get(name)!))
    const found = canaries.foundIn(stored, 'patient')
    // Free fields are named by their callers.
    const isFound = (field: string) => found.some((what) => what === field || what.startsWith(`${field}.`))
    expect([...PATIENT_FIELDS].filter((field) => !isFound(field))).toEqual([])
    const delivered = Buffer.concat(receiver.requests.map(({ body }) => body))
    expect(canaries.foundIn(delivered, 'patient')).toEqual(expect.arrayContaining(['contact', 'first_name']))
    const texts = Buffer.concat(gateways.calls.filter(({ path }) => path === '/sms').map(({ body }) => body))
    expect(canaries.foundIn(texts)).toEqual(expect.arrayContaining(['contact', 'otp']))
    expect(callsOf(service, '/messages')).toBeGreaterThan(0)
    const handedOut = [
      'authToken',
      'clientSecret',
      'key',
      'link',
      'otp',
      'otpToken',
      'patientToken',
      'refreshToken',
      'secret',
    ]
    expect(canaries.names('secret')).toEqual(expect.arrayContaining(handedOut))
  })
})

describe('nothing of a patient and no secret stands in', () => {
  test('a line that a process has logged', () => {
    for (const name of ['api', 'daemon'] as const) {
      const output = service.outputOf(name)
      expect(linesOf(output).length).toBeGreaterThan(50)
      expect([name, service.canaries.foundIn(output)]).toEqual([name, []])
    }
  })

  test('the metrics of a process', async () => {
    for (const name of ['api', 'daemon'] as const) {
      const metrics = await service.metricsOf(name)
      expect(metrics).toContain('# TYPE')
      expect([name, service.canaries.foundIn(metrics)]).toEqual([name, []])
    }
  })

  test('a trace', () => {
    const spans = service.gateways.calls.filter(({ path }) => path === '/v1/traces').map(({ body }) => body)
    expect(service.canaries.foundIn(Buffer.concat(spans))).toEqual([])
  })

  test('the body of an error', () => {
    const found = service.refusals.flatMap(({ call, body }) =>
      service.canaries.foundIn(JSON.stringify(body)).map((what) => `${what} in ${call}`),
    )
    expect(service.refusals.length).toBeGreaterThan(200)
    expect(found).toEqual([])
  })

  test("a mail to a lab's admin", () => {
    expect(service.smtp.mails.length).toBeGreaterThanOrEqual(2)
    for (const { bytes } of service.smtp.mails) {
      const { headers, parts } = parseMail(bytes)
      expect(parts).toHaveLength(2)
      const texts = [...headers.map(([, value]) => decodeWords(value)), ...parts.map(({ text }) => text)]
      expect(service.canaries.foundIn(texts.join('\n'))).toEqual([])
    }
  })

  test('a job of the embedded store: it names a webhook, or nothing at all', () => {
    const kept = linesOf(service.jobs())
    const names = new Set(kept.map(({ name }) => name))
    expect([...names]).toEqual(expect.arrayContaining(['send-messages', 'send-mails', 'check-webhook-health']))
    if (!mongodbUrl) expect([...names]).toEqual(expect.arrayContaining(['deliver-webhook', 'retry-webhook']))
    for (const { data } of kept) {
      if (data) expect(data).toEqual({ webhook: expect.stringMatching(/^\w{26}$/) })
    }
    expect(service.canaries.foundIn(service.jobs())).toEqual([])
  })

  test.skipIf(!process.env.MONGODB_URL)(
    `the job store in MongoDB${process.env.MONGODB_URL ? '' : ` (${WITHOUT_MONGODB})`}`,
    () => {
      expect(jobs.size).toBeGreaterThan(0)
      expect(service.canaries.foundIn([...jobs].join('\n'))).toEqual([])
    },
  )

  test('a table that is not for records of patients', () => {
    for (const [name, rows] of tables) {
      if (PATIENTS_TABLES.has(name)) continue
      expect([name, service.canaries.foundIn(rows, 'patient')]).toEqual([name, []])
    }
  })
})

/**
 * What is left in a process after its work is done and its garbage is collected: the texts of a snapshot of its heap. A buffer
 * is not in it, so this tells nothing of bytes on their way; it tells what a cache, a list or an error would keep.
 */
describe('when all is delivered, the heap holds nothing of a patient, and of secrets', () => {
  const AFTER_MS = 3000
  const CONTRACTS = ['client.yaml', 'operator.yaml'].map((name) => readFileSync(join(ROOT, 'openapi', name), 'utf8'))

  beforeAll(async () => {
    const { knex } = service.app.database
    // What a gateway or the mail server has refused is in the heap again while it is tried once more; the third try is 40 s later.
    const isWaiting = async () =>
      (await knex('delivery_queue').first('event_id')) ??
      (await knex('unrouted_events').first()) ??
      (await knex('sms_messages').whereNotNull('due_at').first('id')) ??
      (await knex('messages').whereNotNull('due_at').first('event_id')) ??
      (await knex('mails').whereNotNull('due_at').first('id'))
    await vi.waitFor(async () => expect(await isWaiting()).toBeUndefined(), { timeout: 90_000, interval: 100 })
    await sleep(AFTER_MS)
  }, 120_000)

  test.each([
    // A token stays known until it expires, so that its signature is checked once.
    ['api', ['token']],
    ['daemon', []],
  ] as const)(
    '%s: %j',
    async (name, secrets) => {
      const held = (await service.heapOf(name)).filter((text) => service.canaries.foundIn(text).length > 0)
      // Examples of the contracts are in the API's heap, and one is a number that a test takes, too.
      const ours = held.filter((text) => !CONTRACTS.some((contract) => contract.includes(text))).join('\n')
      // That one is held by what was loaded into the process: the search finds what is there.
      expect(service.canaries.foundIn(ours, 'patient')).toEqual(['crash'])
      expect(service.canaries.foundIn(ours, 'secret')).toEqual(secrets)
    },
    120_000,
  )
})

describe('no secret stands', () => {
  test('in any table, in clear or as its bytes', () => {
    // Links are published with their events: whoever may read those may open them.
    for (const [name, rows] of tables) {
      expect([name, service.canaries.foundIn(rows, 'secret', ['link'])]).toEqual([name, []])
    }
  })

  test('in a file of the data folder', () => {
    for (const path of filesBelow(service.dataDir)) {
      expect([path, service.canaries.foundIn(readFileSync(path), 'secret')]).toEqual([path, []])
    }
  })

  test('in a second answer: it is shown where it is made, and never again', () => {
    expect(service.timesShown.size).toBeGreaterThan(5)
    expect([...service.timesShown.values()].filter((times) => times !== 1)).toEqual([])
  })
})

test('a process that crashes tells what kind of error it was and where, and not what the error says', async () => {
  for (const [name, { pid, ended }] of Object.entries(service.processes)) {
    process.kill(pid, 'SIGUSR2')
    expect(await ended).toBe('code 1')
    const output = service.outputOf(name as 'api' | 'daemon')
    const line = linesOf(output).at(-1)
    expect(line).toMatchObject({ level: 50, event: 'process.crashed', reason: 'Error', code: 'ER_DUP_ENTRY' })
    expect(line!.stack).toContain('crash-on-signal.ts')
    expect([name, service.canaries.foundIn(output)]).toEqual([name, []])
  }
})
