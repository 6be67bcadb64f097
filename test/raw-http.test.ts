/**
 * What is no HTTP, or a kind of it that two readers could take in two ways, as bytes on a socket: each gets an error of ours or a
 * closed connection, none is taken for a request that the next one hides in, and the process goes on.
 */
import { createConnection } from 'node:net'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Lab } from '../src/catalogue/labs-repository.ts'
import { startTestApp, type TestApp } from './support/app.ts'
import { buildAccount, buildLab, leadBody, type TestAccount } from './support/builders.ts'

let app: TestApp
let account: TestAccount
let lab: Lab

beforeAll(async () => {
  app = await startTestApp({ serves: { client: true, operator: false } })
  account = await buildAccount(app)
  lab = await buildLab(app, account)
})
afterAll(() => app.close())

const HOST = 'Host: x\r\n'
const CLOSE = 'Connection: close\r\n'
const get = (headers: string, path = '/client/labs') => `GET ${path} HTTP/1.1\r\n${HOST}${CLOSE}${headers}\r\n`

/** @returns the status lines of everything that came back until the connection ended; none: it was only closed */
async function exchange(bytes: string | Buffer): Promise<{ statuses: number[]; text: string }> {
  return new Promise((resolve, reject) => {
    let text = ''
    const socket = createConnection(app.port, '127.0.0.1', () => socket.write(bytes))
    // A reset is a closed connection, too.
    socket.on('error', () => {})
    socket.on('data', (data) => (text += data.toString('latin1')))
    socket.on('close', () => {
      clearTimeout(timer)
      const statuses = [...text.matchAll(/(?:^|\})HTTP\/1\.1 (\d{3}) /g)].map((match) => Number(match[1]))
      resolve({ statuses, text })
    })
    const timer = setTimeout(() => {
      socket.destroy()
      reject(new Error(`the connection stays open after ${text.slice(0, 200)}`))
    }, 20_000)
  })
}

const BAD: [what: string, bytes: string | Buffer][] = [
  ['both lengths', `POST /client/labs HTTP/1.1\r\n${HOST}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`],
  ['both, the other way', `POST /client/labs HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n`],
  ['two lengths', `POST /client/labs HTTP/1.1\r\n${HOST}Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!`],
  ['the same length twice', `POST /client/labs HTTP/1.1\r\n${HOST}Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello`],
  ['a list of lengths', `POST /client/labs HTTP/1.1\r\n${HOST}Content-Length: 5, 5\r\n\r\nhello`],
  ['a negative length', `POST /client/labs HTTP/1.1\r\n${HOST}Content-Length: -1\r\n\r\n`],
  ['a length with a plus', `POST /client/labs HTTP/1.1\r\n${HOST}Content-Length: +5\r\n\r\nhello`],
  ['a hexadecimal length', `POST /client/labs HTTP/1.1\r\n${HOST}Content-Length: 0x5\r\n\r\nhello`],
  ['an empty length', `POST /client/labs HTTP/1.1\r\n${HOST}Content-Length:\r\n\r\n`],
  ['a length past 64 bits', `POST /client/labs HTTP/1.1\r\n${HOST}Content-Length: 99999999999999999999\r\n\r\n`],
  ['chunked twice', `POST /client/labs HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n`],
  ['chunked not last', `POST /client/labs HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n`],
  ['an unknown coding', `POST /client/labs HTTP/1.1\r\n${HOST}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n`],
  ['a vertical tab in the coding', `POST /client/labs HTTP/1.1\r\n${HOST}Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n`],
  ['a folded header', get('X-A: b\r\n c\r\n')],
  ['a header that begins with a blank', get(' X-A: b\r\n')],
  ['a blank before the colon', get('Content-Length : 0\r\n')],
  ['a header without a colon', get('hello\r\n')],
  ['a header without a name', get(': x\r\n')],
  ['a zero byte in a header', get('X-A: b\0c\r\n')],
  ['a zero byte in a header name', get('X-\0A: b\r\n')],
  ['a zero byte in the path', `GET /client/la\0bs HTTP/1.1\r\n${HOST}\r\n`],
  ['a bare line feed after a header', `GET /client/labs HTTP/1.1\r\n${HOST}X-A: b\nX-B: c\r\n\r\n`],
  ['bare carriage returns', `GET /client/labs HTTP/1.1\r${HOST}\r\r`],
  ['a control character in a header', get('X-A: b\x01\r\n')],
  ['version 1.2', `GET /client/labs HTTP/1.2\r\n${HOST}\r\n`],
  ['a version in lower case', `GET /client/labs http/1.1\r\n${HOST}\r\n`],
  ['a method in lower case', `get /client/labs HTTP/1.1\r\n${HOST}\r\n`],
  ['an unknown method', `FETCH /client/labs HTTP/1.1\r\n${HOST}\r\n`],
  ['a blank in the path', `GET /client/la bs HTTP/1.1\r\n${HOST}\r\n`],
  ['a tab for a blank', `GET\t/client/labs\tHTTP/1.1\r\n${HOST}\r\n`],
  ['the preface of HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'],
  ['a TLS hello', Buffer.from('16030100c8010000c40303', 'hex')],
  ['noise', Buffer.from(Array.from({ length: 512 }, (_, n) => (n * 37 + 11) % 256))],
  ['a header of 200 KB', get(`X-A: ${'y'.repeat(200_000)}\r\n`)],
  ['a path of 200 KB', get('', `/client/labs?${'y'.repeat(200_000)}`)],
  ['50,000 headers', get('X: y\r\n'.repeat(50_000))],
] // prettier-ignore

describe('a request', () => {
  test.each(BAD)('with %s is refused or cut, and gets no other answer', async (_, bytes) => {
    const { statuses, text } = await exchange(bytes)
    expect(statuses.length).toBeLessThanOrEqual(1)
    if (statuses.length === 1) {
      expect([400, 431]).toContain(statuses[0])
      expect(text).toMatch(/"success":false,"status":4\d\d/)
      const [, id] = /\r\nX-Request-Id: (\S+)\r\n/.exec(text) ?? []
      expect(text).toContain(`"requestId":"${id}"`)
    }
    expect((await app.call('GET', '/livez')).status).toBe(200)
  })

  test('that asks for another protocol is answered, and its connection closed: what stood behind it is lost', async () => {
    const upgrade = `${HOST}Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n`
    const behind = `GET /livez HTTP/1.1\r\n${HOST}\r\n`
    for (const bytes of [`${upgrade}\r\n`, `${upgrade}\r\n${behind}`, `${upgrade}Expect: tea\r\n\r\n${behind}`]) {
      const { statuses, text } = await exchange(`GET /livez HTTP/1.1\r\n${bytes}`)
      expect([statuses, text]).toEqual([[200], expect.stringMatching(/^connection: close\r$/im)])
    }
  })

  test('that names another protocol and does not ask for it is answered, and so is what stands behind it', async () => {
    const first = `GET /livez HTTP/1.1\r\n${HOST}Upgrade: websocket\r\nConnection: keep-alive\r\n\r\n`
    expect((await exchange(first + get('', '/livez'))).statuses).toEqual([200, 200])
  })

  test('that asks for a tunnel is answered 404', async () => {
    const { statuses, text } = await exchange(`CONNECT example.com:443 HTTP/1.1\r\n${HOST}\r\n`)
    expect([statuses, text]).toEqual([[404], expect.stringMatching(/"success":false,"status":404.*"requestId":"/)])
  })

  test('that asks for a tunnel and is gone before the answer ends nothing but its connection', async () => {
    for (let n = 0; n < 50; n++) {
      await new Promise<void>((resolve) => {
        const socket = createConnection(app.port, '127.0.0.1', () => {
          socket.write(`CONNECT example.com:443 HTTP/1.1\r\n${HOST}\r\nmore`)
          setTimeout(() => socket.resetAndDestroy(), n % 5)
        })
        socket.on('error', () => {}).on('close', () => resolve())
      })
    }
    expect((await app.call('GET', '/livez')).status).toBe(200)
  })

  const chunked = (chunks: string) =>
    `POST /client/crm/lead/create HTTP/1.1\r\n${HOST}${CLOSE}Authorization: Bearer ${account.token}\r\n` +
    `Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n${chunks}`
  const lead = () => JSON.stringify(leadBody(lab))
  const chunk = (text: string) => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`

  test.each([
    ['a size that is no number', () => `xyz\r\n${lead()}\r\n0\r\n\r\n`],
    ['a negative size', () => `-1\r\n${lead()}\r\n0\r\n\r\n`],
    ['a size with 0x', () => `0x10\r\n${lead()}\r\n0\r\n\r\n`],
    ['a size past 64 bits', () => `fffffffffffffffff\r\n${lead()}\r\n0\r\n\r\n`],
    ['more bytes than its size', () => `2\r\n${lead()}\r\n0\r\n\r\n`],
    ['no line end after it', () => `${chunk(lead()).slice(0, -2)}0\r\n\r\n`],
    ['a zero byte in the size', () => `1\x001\r\n${lead()}\r\n0\r\n\r\n`],
    ['a bare line feed after the size', () => `${lead().length.toString(16)}\n${lead()}\r\n0\r\n\r\n`],
  ])('in chunks, one with %s, is refused or cut and stores nothing', async (_, chunks) => {
    const count = async () => Number((await app.database.knex('entries').count({ n: '*' }).first())!.n)
    const before = await count()
    const { statuses } = await exchange(chunked(chunks()))
    expect(statuses.filter((status) => status !== 400)).toEqual([])
    expect(await count()).toBe(before)
  })

  test('in sound chunks, of a byte each and with an extension and a trailer, is taken', async () => {
    const bytes = [...Buffer.from(lead())].map((byte) => `1;a=b\r\n${String.fromCharCode(byte)}\r\n`).join('')
    expect((await exchange(chunked(`${bytes}0\r\nX-Trailer: 1\r\n\r\n`))).statuses).toEqual([200])
  })

  test.each(['', 'Content-Type: application/json\r\n', 'Content-Type: application/octet-stream\r\n'])(
    'in no chunks has no body, where none need be, whatever its type: %j',
    async (type) => {
      const empty = (line: string, coding = 'chunked') =>
        exchange(
          `${line} HTTP/1.1\r\n${HOST}${CLOSE}Authorization: Bearer ${account.token}\r\n${type}Transfer-Encoding: ${coding}\r\n\r\n0\r\n\r\n`,
        )
      const gone = `/client/events/deleteEvent/nothing?labID=${lab.id}`
      expect((await empty(`DELETE ${gone}`)).statuses).toEqual([404])
      expect((await empty(`POST /client/events/testEvent/nothing?labID=${lab.id}`)).statuses).toEqual([404])
      expect((await empty(`DELETE ${gone}`, 'gzip, chunked')).statuses).toEqual([415])
      expect((await empty('POST /client/crm/lead/create')).statuses).toEqual([/json/.test(type) ? 400 : 415])
    },
  )

  test('whose body is compressed on the way, besides the chunks, is 415', async () => {
    const sent = chunked(`${chunk(lead())}0\r\n\r\n`).replace('Encoding: chunked', 'Encoding: gzip, chunked')
    expect((await exchange(sent)).statuses).toEqual([415])
  })

  test('that asks whether to go on, is told so, and then is answered', async () => {
    const body = lead()
    const { text } = await exchange(
      `POST /client/crm/lead/create HTTP/1.1\r\n${HOST}${CLOSE}Authorization: Bearer ${account.token}\r\n` +
        `Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\nExpect: 100-continue\r\n\r\n${body}`,
    )
    expect(text).toMatch(/^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 200 OK/)
  })

  test('that was answered without its body being read does not make a request of that body', async () => {
    const hidden = `GET /client/labs HTTP/1.1\r\n${HOST}Authorization: Bearer ${account.token}\r\n${CLOSE}\r\n`
    const outer = `DELETE /client/labs HTTP/1.1\r\n${HOST}Content-Length: ${hidden.length}\r\n\r\n${hidden}`
    const { statuses } = await exchange(outer + get(''))
    expect(statuses).toEqual([405, 401])
  })

  test('follows another on the same connection, each answered in its turn', async () => {
    const token = `Authorization: Bearer ${account.token}\r\n`
    const first = `GET /client/labs HTTP/1.1\r\n${HOST}${token}\r\n`
    const second = `GET /client/nowhere HTTP/1.1\r\n${HOST}${token}\r\n`
    expect((await exchange(first + second + get(token))).statuses).toEqual([200, 404, 200])
  })

  test('of version 1.0, or with an absolute address is answered', async () => {
    const token = `Authorization: Bearer ${account.token}\r\n`
    expect((await exchange(`GET /client/labs HTTP/1.0\r\n${token}\r\n`)).statuses).toEqual([200])
    expect((await exchange(get(token, 'http://x/client/labs'))).statuses.length).toBe(1)
  })

  test('for what is no URL is 400 in the error shape', async () => {
    const { statuses, text } = await exchange(get('', 'http://[::1/client/labs'))
    expect(statuses).toEqual([400])
    expect(text).toMatch(/X-Request-Id: [^]*"success":false[^]*invalid_http[^]*"requestId"/)
  })

  test.each([
    ['without a host', ''],
    ['with two hosts', `${HOST}${HOST}`],
    ['with two hosts that differ', `${HOST}hOST: y\r\n`],
  ])('%s is 400 in the error shape, whatever it asks for', async (_, hosts) => {
    const token = `Authorization: Bearer ${account.token}\r\n`
    for (const path of ['/client/labs', '/livez', '/nowhere']) {
      const { statuses, text } = await exchange(`GET ${path} HTTP/1.1\r\n${hosts}${CLOSE}${token}\r\n`)
      expect(statuses).toEqual([400])
      expect(text).toMatch(/"success":false[^]*one Host header[^]*invalid_http/)
    }
  })

  test.each(['Authorization', 'authorization'])(
    'with two Authorization headers is 401, whatever they say (%s)',
    async (name) => {
      const token = `Bearer ${account.token}`
      expect((await exchange(get(`Authorization: ${token}\r\n${name}: ${token}\r\n`))).statuses).toEqual([401])
      expect((await exchange(get(`Authorization: ${token}\r\n${name}: Bearer x\r\n`))).statuses).toEqual([401])
    },
  )
})
