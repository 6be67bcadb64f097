import { once } from 'node:events'
import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createHttpServer, drain, listen } from '../src/http-server.ts'

const BODY_TIMEOUT_MS = 200
const STALLED_TIMEOUT_MS = 3000
/** More than all buffers on the way. */
const LONG_ANSWER = Buffer.alloc(64 * 1024 * 1024, 'x')

const server = createHttpServer(
  (req, res) => {
    req.resume()
    if (req.url === '/operator/nothing') return void res.end('refused')
    req.on('end', () => res.end(req.url === '/long' ? LONG_ANSWER : 'read to its end'))
  },
  BODY_TIMEOUT_MS,
  STALLED_TIMEOUT_MS,
)
let port: number

beforeAll(async () => {
  port = await listen(server, 0, '127.0.0.1')
})
afterAll(() => drain(server, 1000))

/** Sends a head and half a body; the other half where the server has not answered by then. */
async function sendSlowly(path: string, contentType: string, expects = ''): Promise<string> {
  const socket = connect(port, '127.0.0.1')
  await once(socket, 'connect')
  socket.write(
    `POST ${path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: ${contentType}\r\nContent-Length: 4\r\n${expects}\r\n%P`,
  )
  const answer = text(socket)
  const late = new Promise((resolve) => setTimeout(resolve, BODY_TIMEOUT_MS * 4))
  if ((await Promise.race([answer, late])) === undefined) socket.write('DF')
  return answer
}

test('a body that takes too long is answered 408 in the error shape', async () => {
  const answer = await sendSlowly('/client/crm/lead/create', 'application/json')
  expect(answer).toMatch(/^HTTP\/1\.1 408 Request Timeout\r\n/)
  expect(JSON.parse(answer.split('\r\n\r\n')[1]!)).toMatchObject({ success: false, status: 408 })
  expect(await sendSlowly('/client/crm/lead/create', 'application/pdf')).toContain('408')
  expect(await sendSlowly('/client/crm/lead/create', 'application/json', 'Expect: tea\r\n')).toContain('408')
})

test('a stop waits for no connection whose request expected something and was answered', async () => {
  const own = createHttpServer((_, res) => res.end('answered'))
  const socket = connect(await listen(own, 0, '127.0.0.1'), '127.0.0.1')
  await once(socket, 'connect')
  socket.write('GET / HTTP/1.1\r\nHost: x\r\nExpect: tea\r\n\r\n')
  await once(socket, 'data')
  const closed = once(socket, 'close')
  const startedAtMs = performance.now()
  await drain(own, 20_000)
  await closed
  expect(performance.now() - startedAtMs).toBeLessThan(10_000)
})

test.each(['application/pdf', 'Application/PDF', 'application/pdf; charset=binary'])(
  'the file of a report has longer, as %s',
  async (contentType) => {
    expect(await sendSlowly('/operator/accounts/x/reports/y/upload', contentType)).toMatch(
      /^HTTP\/1\.1 200 OK\r\n[^]*read to its end/,
    )
  },
)

test('what is refused has no longer because it says that it is a file', async () => {
  const socket = connect(port, '127.0.0.1')
  await once(socket, 'connect')
  socket.on('error', () => {})
  socket.write(
    'POST /operator/nothing HTTP/1.1\r\nHost: x\r\nContent-Type: application/pdf\r\nContent-Length: 5000\r\n\r\n',
  )
  const drip = setInterval(() => socket.write('%'), BODY_TIMEOUT_MS / 4)
  const closed = new Promise((resolve) => socket.once('close', resolve))
  const [answer] = await once(socket, 'data')
  expect(String(answer)).toContain('refused')
  await closed
  clearInterval(drip)
  expect(socket.bytesWritten).toBeLessThan(1000)
})

const askForLong = async () => {
  const socket = connect(port, '127.0.0.1')
  await once(socket, 'connect')
  socket.on('error', () => {})
  socket.pause()
  const asked = once(server, 'request')
  socket.write('GET /long HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')
  await asked
  return socket
}
const connections = () => new Promise((resolve) => server.getConnections((_, count) => resolve(count)))

test('a client that does not take its answer is cut off', async () => {
  const socket = await askForLong()
  await expect.poll(connections, { timeout: 15_000 }).toBe(0)
  socket.destroy()
})

test('one that only waits for a while gets all of it', async () => {
  const socket = await askForLong()
  await new Promise((resolve) => setTimeout(resolve, STALLED_TIMEOUT_MS / 4))
  let bytes = 0
  for await (const chunk of socket) bytes += chunk.length
  expect(bytes).toBeGreaterThan(LONG_ANSWER.length)
})
