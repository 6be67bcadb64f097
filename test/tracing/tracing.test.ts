/**
 * Traces from a call to the attempts of its event, by real processes and a collector that takes OTLP over HTTP.
 */
import { randomBytes } from 'node:crypto'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer, type AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import type { Lab } from '../../src/catalogue/labs-repository.ts'
import { startApiProcess, type ApiProcess } from '../support/api-process.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { buildAccount, buildLab, leadBody, newContact, subscribeBody } from '../support/builders.ts'
import { daemonProcesses, exited, type DaemonProcesses } from '../support/daemon-process.ts'
import { SECRETS_KEY } from '../support/delivery-world.ts'
import { createTestTls } from '../support/tls.ts'
import { startTraceCollector, type CollectedSpan, type TraceCollector } from '../support/trace-collector.ts'

/** Real processes are started, on machines that may do other things. */
vi.setConfig({ testTimeout: 90_000, hookTimeout: 90_000 })

const folder = mkdtempSync(join(tmpdir(), 'lis-tracing-'))
const secretsKey = SECRETS_KEY.toString('base64')
let app: TestApp
let tls: Awaited<ReturnType<typeof createTestTls>>
let receiver: HttpsReceiver
let daemons: DaemonProcesses
let collector: TraceCollector
let api: ApiProcess | undefined
let lab: Lab
let token: string

beforeAll(async () => {
  // Only for its database and for what the builders write: the calls go to processes.
  app = await startTestApp({ serves: { client: true, operator: false } })
  tls = await createTestTls()
  receiver = await startHttpsReceiver(tls, ({ path }) => ({ status: path.startsWith('/down') ? 503 : 204 }))
  daemons = daemonProcesses(app.mysqlUrl, tls.caFile)
  collector = await startTraceCollector()
})
afterAll(async () => {
  await api?.kill()
  daemons.close()
  await collector.close()
  await receiver.close()
  await app.close()
  tls.remove()
  rmSync(folder, { recursive: true, force: true })
})

const traced = (env: Record<string, string> = {}) => ({
  OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
  OTEL_BSP_SCHEDULE_DELAY: '50',
  ...env,
})

/** An API in place of the one before, and an account with a lab on it. */
async function startApi(env: Record<string, string>): Promise<void> {
  await api?.kill()
  api = await startApiProcess({ mysqlUrl: app.mysqlUrl, dataDir: folder, secretsKey, env })
  const account = await buildAccount(app)
  lab = await buildLab(app, account)
  const { body } = await call('/client/auth/token', {
    clientID: account.clientId,
    clientSecret: account.clientSecret,
  })
  token = body.authToken
}

async function call(path: string, body: object, headers: Record<string, string> = {}) {
  const response = await fetch(api!.baseUrl + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}`, ...headers },
    body: JSON.stringify(body),
  })
  return { status: response.status, body: (await response.json()) as any }
}

function newTraceParent(flags = '01') {
  const [traceId, spanId] = [randomBytes(16).toString('hex'), randomBytes(8).toString('hex')]
  return { traceId, spanId, header: `00-${traceId}-${spanId}-${flags}` }
}

const storedTraceParents = () => app.database.knex('events').where({ lab_id: lab.id }).pluck('trace_parent')

const spansOf = (traceId: string): CollectedSpan[] => collector.spans.filter((span) => span.traceId === traceId)

test('a call, the fan-out of its event and each attempt are one trace, also when the API has gone in between', async () => {
  await startApi(traced())
  const refusing = createServer().listen(0, '127.0.0.1')
  const refusedPort = await new Promise<number>((resolve) => {
    refusing.once('listening', () => resolve((refusing.address() as AddressInfo).port))
  })
  refusing.close()
  const ids: Record<string, string> = {}
  for (const [name, endpoint] of [
    ['up', `${receiver.url}/up/canary-path`],
    ['down', `${receiver.url}/down`],
    ['refused', `https://127.0.0.1:${refusedPort}/`],
  ] as const) {
    const { body } = await call('/client/events/subscribe', subscribeBody(lab, { endpoint }))
    ids[body.data._id] = name
  }
  const { traceId, spanId, header } = newTraceParent()
  const contact = newContact()
  const lead = leadBody(lab, { contact, first_name: 'Canaryname', email: 'canary@example.com' })
  const { status } = await call('/client/crm/lead/create?q=canaryquery', lead, { traceparent: header })
  expect(status).toBe(200)
  // What it still held is sent before it ends.
  expect(await api!.stop()).toBe(0)
  const [request] = spansOf(traceId)
  expect(request).toMatchObject({
    service: 'lis-api',
    name: 'POST /client/crm/lead/create',
    kind: 2,
    parentSpanId: spanId,
    failed: false,
    attributes: {
      'http.route': '/client/crm/lead/create',
      'http.response.status_code': 200,
      'lis.operation': 'createEntry',
    },
  })
  expect(spansOf(traceId)).toHaveLength(1)

  const daemon = await daemons.start(traced({ RETRY_SCHEDULE: '0.1' }))
  await vi.waitFor(() => expect(spansOf(traceId)).toHaveLength(1 + 1 + 5), { timeout: 60_000, interval: 50 })
  daemon.kill('SIGTERM')
  expect(await exited(daemon)).toBe(0)
  const later = spansOf(traceId).slice(1)
  for (const span of later) {
    expect(span).toMatchObject({ service: 'lis-daemon', parentSpanId: request!.spanId })
    expect(span.startMs).toBeGreaterThanOrEqual(request!.startMs)
    expect(span.endMs).toBeGreaterThanOrEqual(span.startMs)
    expect(span.attributes['lis.event_type']).toBe('lead.created')
  }
  expect(new Set(later.map(({ attributes }) => attributes['lis.event_id'])).size).toBe(1)
  const told = later.map(({ name, kind, failed, attributes: all }) =>
    name === 'delivery.attempt'
      ? [
          ids[String(all['lis.webhook_id'])],
          all['lis.attempt'],
          kind,
          failed,
          all['error.type'],
          all['http.response.status_code'],
        ]
      : [name, kind, failed],
  )
  expect(told.map((span) => JSON.stringify(span)).sort()).toEqual(
    [
      ['event.fan_out', 1, false],
      ['up', 1, 3, false, undefined, 204],
      ['down', 1, 3, true, 'http_status', 503],
      ['down', 2, 3, true, 'http_status', 503],
      ['refused', 1, 3, true, 'refused', undefined],
      ['refused', 2, 3, true, 'refused', undefined],
    ]
      .map((span) => JSON.stringify(span))
      .sort(),
  )
  // Nothing of the patient, no address, no token leaves; and nothing of the trace goes to the endpoint.
  for (const secret of [contact, 'canary', 'Canary', token, receiver.url, '127.0.0.1:' + refusedPort])
    expect(
      collector
        .received()
        .split('\n')
        .filter((line) => !line.startsWith('{"host"'))
        .join(),
    ).not.toContain(secret)
  for (const { headers } of receiver.requests) expect(Object.keys(headers).join()).not.toMatch(/trace/)
})

/** Writes down each file of OpenTelemetry that a process loads. */
function loadsOf(name: string): { env: Record<string, string>; loaded: () => string } {
  const file = join(folder, name)
  const hook = `import { registerHooks } from 'node:module'
    import { appendFileSync } from 'node:fs'
    registerHooks({ load(url, context, next) {
      if (/@opentelemetry|tracing-sdk/.test(url)) appendFileSync(${JSON.stringify(file)}, url + '\\n')
      return next(url, context)
    } })`
  return {
    env: { NODE_OPTIONS: `--import "data:text/javascript,${encodeURIComponent(hook)}"` },
    loaded: () => (existsSync(file) ? readFileSync(file, 'utf8') : ''),
  }
}

/** prom-client has the interfaces of OpenTelemetry, which do nothing by themselves, among its own. */
const SDK = /tracing-sdk|@opentelemetry\/(?!api\/)/

describe('an API that traces', () => {
  const { env, loaded } = loadsOf('traced')
  beforeAll(() => startApi({ ...traced(), ...env }))

  test('has loaded the SDK', () => {
    expect(loaded()).toMatch(SDK)
  })

  test('says of a failed call of what kind, and of a path that is none nothing; a header that is no trace context begins a new trace', async () => {
    const before = collector.spans.length
    const { status } = await call('/client/crm/lead/create', {}, { traceparent: 'ff-nothing' })
    expect(status).toBe(400)
    await call('/client/nowhere/9876543210', {})
    // What the API was asked while it started may arrive among them.
    const answered = (code: number) =>
      collector.spans.slice(before).find(({ attributes }) => attributes['http.response.status_code'] === code)
    await vi.waitFor(() => expect([answered(400), answered(404)]).not.toContain(undefined), { timeout: 20_000 })
    const [refused, unknown] = [answered(400), answered(404)]
    expect(refused).toMatchObject({
      failed: false,
      attributes: { 'http.response.status_code': 400, 'error.type': expect.stringMatching(/./) },
    })
    expect(refused!.parentSpanId ?? '').toBe('')
    expect(unknown).toMatchObject({ name: 'POST', attributes: { 'http.response.status_code': 404 } })
    expect(collector.received()).not.toContain('9876543210')
  })

  test('leaves a caller alone that does not sample: no span, and nothing stored', async () => {
    const { traceId, header } = newTraceParent('00')
    expect((await call('/client/crm/lead/create', leadBody(lab), { traceparent: header })).status).toBe(200)
    expect(await storedTraceParents()).toEqual([null])
    expect(await api!.stop()).toBe(0)
    expect(spansOf(traceId)).toEqual([])
  })
})

test('tracing is off unless configured: the SDK is not loaded, nothing is stored, and no byte is sent', async () => {
  const own = await startTraceCollector()
  // An endpoint alone would switch it on.
  const env = { OTEL_EXPORTER_OTLP_ENDPOINT: own.url, OTEL_SDK_DISABLED: 'true' }
  const loads = [loadsOf('api'), loadsOf('daemon')] as const
  await startApi({ ...env, ...loads[0].env })
  const daemon = await daemons.start(loads[1].env)
  await call('/client/events/subscribe', subscribeBody(lab, { endpoint: `${receiver.url}/off` }))
  const { header } = newTraceParent()
  expect((await call('/client/crm/lead/create', leadBody(lab), { traceparent: header })).status).toBe(200)
  const arrived = () => receiver.requests.filter(({ path }) => path === '/off').length
  await vi.waitFor(() => expect(arrived()).toBe(1), { timeout: 30_000 })
  expect(await storedTraceParents()).toEqual([null])
  daemon.kill('SIGTERM')
  await Promise.all([exited(daemon), api!.stop()])
  for (const { loaded } of loads) expect(loaded()).not.toMatch(SDK)
  expect(own.connections()).toBe(0)
  await own.close()
})

test('a collector that takes connections and says nothing holds up neither an answer nor the end of a process', async () => {
  const silent = createServer((socket) => socket.on('error', () => {})).listen(0, '127.0.0.1')
  await new Promise((resolve) => silent.once('listening', resolve))
  await startApi(traced({ OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${(silent.address() as AddressInfo).port}` }))
  expect((await call('/client/crm/lead/create', leadBody(lab))).status).toBe(200)
  expect(await api!.stop()).toBe(0)
  silent.close()
})
