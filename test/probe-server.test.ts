/**
 * The ports for probes and metrics alone: what the daemon and the API's METRICS_PORT answer.
 */
import { createConnection } from 'node:net'
import { text as textOf } from 'node:stream/consumers'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startHealthServer, type HealthServer } from '../daemon/health-server.ts'
import { listen } from '../src/http-server.ts'
import { createLogger } from '../src/logger.ts'
import { createMetrics } from '../src/metrics.ts'
import { createMetricsServer } from '../src/probe-server.ts'

const log = createLogger('daemon', 'silent')
const metrics = createMetrics(false)
const metricsServer = createMetricsServer(metrics, log)
let health: HealthServer
let metricsPort: number
let fault: string | undefined

beforeAll(async () => {
  metrics.gauge('lis_test', 'A test', () => [{ value: 1 }])
  health = await startHealthServer('127.0.0.1', 0, () => fault, metrics, log)
  metricsPort = await listen(metricsServer, 0, '127.0.0.1')
})
afterAll(async () => {
  await health.close()
  metricsServer.close()
  metricsServer.closeAllConnections()
})

async function ask(path: string, method = 'GET', port = health.port) {
  const response = await fetch(`http://127.0.0.1:${port}${path}`, { method, headers: { 'x-request-id': 'probe-1' } })
  return { status: response.status, headers: response.headers, text: await response.text() }
}

const errorOf = (status: number, message: string, code: string) => ({
  success: false,
  status,
  message,
  error: { details: expect.any(String), code },
  requestId: 'probe-1',
})

test.each(['/livez', '/readyz', '/metrics'])('%s of a daemon answers HEAD as GET without the body', async (path) => {
  const [got, head] = [await ask(path), await ask(path, 'HEAD')]
  expect([got.status, head.status, head.text]).toEqual([200, 200, ''])
  expect(got.text).not.toBe('')
  for (const name of ['content-type', 'content-length']) expect(head.headers.get(name)).toBe(got.headers.get(name))
})

test.each(['/livez', '/readyz', '/metrics'])('%s of a daemon takes no other method', async (path) => {
  for (const method of ['POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']) {
    const { status, headers, text } = await ask(path, method)
    expect([status, headers.get('allow')]).toEqual([405, 'GET, HEAD'])
    expect(JSON.parse(text)).toEqual(errorOf(405, 'Method Not Allowed', 'method_not_allowed'))
  }
})

test('every other path is a 404 in the shape of an error, whatever the method', async () => {
  for (const [path, method, port] of [
    ['/', 'GET', health.port],
    ['/livez/', 'GET', health.port],
    ['/constructor', 'POST', health.port],
    ['/livez', 'GET', metricsPort],
  ] as const) {
    const { status, text } = await ask(path, method, port)
    expect([path, status, JSON.parse(text)]).toEqual([path, 404, errorOf(404, 'Not Found', 'not_found')])
  }
})

test('a daemon that is not ready says why as the API does, and lives', async () => {
  fault = 'the database does not answer'
  const { status, headers, text } = await ask('/readyz')
  expect([status, headers.get('retry-after')]).toEqual([503, '1'])
  expect(JSON.parse(text)).toMatchObject({ success: false, status: 503, error: { details: fault } })
  expect((await ask('/readyz', 'HEAD')).status).toBe(503)
  expect((await ask('/livez')).status).toBe(200)
  fault = undefined
})

test('metrics that can not be read are a 500 that says nothing of the cause', async () => {
  const broken = createMetrics(false)
  broken.gauge('lis_broken', 'A test', () => {
    throw new Error('secret')
  })
  const server = createMetricsServer(broken, log)
  const { status, text } = await ask('/metrics', 'GET', await listen(server, 0, '127.0.0.1'))
  server.close()
  expect([status, JSON.parse(text)]).toEqual([500, errorOf(500, 'Internal Server Error', 'internal_error')])
})

test.each(['GET /livez HTTP/1.1\r\nConnection: close\r\n\r\n', 'nonsense\r\n\r\n'])(
  'what is no request has that shape too: %j',
  async (bytes) => {
    const socket = createConnection(health.port, '127.0.0.1', () => socket.write(bytes))
    const answer = await textOf(socket)
    expect(answer).toMatch(/^HTTP\/1\.1 400 Bad Request\r\n/)
    expect(JSON.parse(answer.split('\r\n\r\n')[1]!)).toMatchObject({
      success: false,
      status: 400,
      error: { code: 'invalid_http' },
    })
  },
)
