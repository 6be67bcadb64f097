import { describe, expect, test } from 'vitest'
import { HttpAnswer } from '../../daemon/http-answer.ts'
import { endOfStrictAnswer } from '../support/strict-answer.ts'

/** The same numbers each time. */
function numbers(seed: number): (below: number) => number {
  return (below) => Math.floor(((seed = (seed * 48271) % 2147483647) / 2147483647) * below)
}

/** @param cuts where a new piece begins, in ascending order */
function read(text: string, cuts: number[] = []) {
  const answer = new HttpAnswer()
  const bytes = Buffer.from(text, 'latin1')
  for (const [n, from] of [0, ...cuts].entries()) {
    // What stands behind the piece is of something else.
    const memory = Buffer.alloc(bytes.length + 64, '\n')
    const length = bytes.copy(memory, 0, from, cuts[n] ?? bytes.length)
    if (length > 0 && !answer.over) answer.push(memory, length)
    // Nothing of what was given is held on to.
    memory.fill('!')
  }
  const { status, fault, retryAfter, over, reusable, keepAliveSeconds } = answer
  return { status, fault, retryAfter, over, reusable, keepAliveSeconds, kept: answer.kept?.toString('latin1') ?? null }
}

const CHUNKED = 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n'
const ANSWERS = [
  'HTTP/1.1 204 No Content\r\nDate: Sat, 21 Nov 2026 10:00:00 GMT\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\n\r\n',
  'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello',
  'HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n',
  `${CHUNKED}5\r\nhello\r\n0\r\n\r\n`,
  `${CHUNKED}2;a=b;c="d"\r\nab\r\n000A\r\n0123456789\r\n0\r\nx-sum: 1\r\n\r\n`,
  'HTTP/1.1 503 Service Unavailable\r\nRetry-After:\t120 \r\ncontent-length: 2\r\n\r\nno',
  'HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Made\r\ncontent-length: 3\r\n\r\nyes',
  'HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 1\r\n\r\n.',
  'HTTP/1.1 304 Not Modified\r\nserver: caf\u00e9\r\n\r\n',
]

describe('an answer', () => {
  test('is read alike wherever it is cut', () => {
    for (const text of ANSWERS) {
      const whole = read(text)
      expect(whole).toMatchObject({ over: true, reusable: true, fault: undefined })
      for (let cut = 1; cut < text.length; cut++) expect(read(text, [cut])).toEqual(whole)
      expect(read(text, [...text].map((_, n) => n).slice(1))).toEqual(whole)
    }
  })

  test('has its status, its body and the times it names', () => {
    expect(read(ANSWERS[0]!)).toMatchObject({ status: 204, kept: null, keepAliveSeconds: 5 })
    for (const said of ['TIMEOUT=7', 'max=9, timeout = 7', 'timeout="7"']) {
      expect(read(`HTTP/1.1 204 No Content\r\nKeep-Alive: ${said}\r\n\r\n`)).toMatchObject({ keepAliveSeconds: 7 })
    }
    expect(read(ANSWERS[4]!)).toMatchObject({ status: 200, kept: 'ab0123456789' })
    expect(read(ANSWERS[5]!)).toMatchObject({ status: 503, retryAfter: '120', kept: 'no' })
    expect(read(ANSWERS[6]!)).toMatchObject({ status: 201, kept: 'yes' })
  })

  test('that is cut short leaves its connection unused', () => {
    for (const text of ANSWERS) {
      for (let end = 1; end < text.length; end++) expect(read(text.slice(0, end)).reusable).toBe(false)
    }
  })

  test('with another behind it leaves its connection unused', () => {
    for (const text of ANSWERS) {
      expect(read(text + ANSWERS[1]!)).toEqual({ ...read(text), reusable: false })
      expect(read(`${text}\r\n`).reusable).toBe(false)
      expect(read(`${text}\0`).reusable).toBe(false)
    }
  })
})

describe('what leaves a doubt about where the next answer begins ends the connection, not the answer', () => {
  test.each([
    ['connection: close', 'HTTP/1.1 200 OK\r\nConnection: Close\r\ncontent-length: 0\r\n\r\n'],
    ['close among other words', 'HTTP/1.1 200 OK\r\nconnection: x, close\r\ncontent-length: 0\r\n\r\n'],
    ['both words', 'HTTP/1.1 200 OK\r\nconnection: close\r\nconnection: keep-alive\r\ncontent-length: 0\r\n\r\n'],
    ['HTTP/1.0', 'HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n'],
    ['chunks of HTTP/1.0', 'HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n'],
    [
      'an informational head with a body',
      'HTTP/1.1 103 E\r\ncontent-length: 4\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n',
    ],
    ['a version that does not belong here', 'HTTP/2.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 0\r\n\r\n'],
    ['a coding before the chunks', `HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n`],
    ['chunks twice', 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n'],
    ['a body where there is none', 'HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\n'],
    ['chunks where there are none', 'HTTP/1.1 304 Not Modified\r\ntransfer-encoding: chunked\r\n\r\n'],
    ['a bare line feed', 'HTTP/1.1 200 OK\r\nx: y\ncontent-length: 0\r\n\r\n'],
    ['line feeds alone', 'HTTP/1.1 200 OK\ncontent-length: 0\n\n'],
    ['a bare line feed at the end', 'HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\n'],
    [
      'line feeds before the answer',
      '\nHTTP/1.1 103 Early Hints\nlink: x\n\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n',
    ],
    ['a body behind line feeds', 'HTTP/1.1 200 OK\ncontent-length: 5\n\nhello'],
    ['chunks behind line feeds', 'HTTP/1.1 200 OK\ntransfer-encoding: chunked\n\n5\r\nhello\r\n0\r\n\r\n'],
    ['one length twice', 'HTTP/1.1 200 OK\r\ncontent-length: 5\r\nContent-Length: 5\r\n\r\nhello'],
    ['one length in a list', 'HTTP/1.1 200 OK\r\ncontent-length: 5, 5 ,5\r\n\r\nhello'],
    ['an empty line first', '\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n'],
    ['a control character in the reason', 'HTTP/1.1 200 O\0K\r\ncontent-length: 0\r\n\r\n'],
    ['a chunk without a size', `${CHUNKED}\r\nhello\r\n0\r\n\r\n`],
    ['a chunk of a size with a sign', `${CHUNKED}+5\r\nhello\r\n0\r\n\r\n`],
    ['a chunk of a size with a prefix', `${CHUNKED}0x5\r\nhello\r\n0\r\n\r\n`],
    ['a chunk of a size that overflows', `${CHUNKED}100000005\r\nhello\r\n0\r\n\r\n`],
    ['a chunk longer than it says', `${CHUNKED}4\r\nhello\r\n0\r\n\r\n`],
    ['a bare line feed behind a size', `${CHUNKED}5\nhello\r\n0\r\n\r\n`],
    ['a trailer that is none', `${CHUNKED}0\r\nx\r\n\r\n`],
  ])('%s', (_, text) => {
    const answer = read(text)
    expect(answer).toMatchObject({ over: true, reusable: false, fault: undefined })
    expect(answer.status).toBeGreaterThan(199)
  })

  test('only the end of the connection ends a body without a length', () => {
    for (const header of ['', 'transfer-encoding: chunked, gzip\r\n', 'transfer-encoding: identity\r\n']) {
      const answer = new HttpAnswer()
      const bytes = Buffer.from(`HTTP/1.1 200 OK\r\n${header}\r\nhello`)
      answer.push(bytes, bytes.length)
      expect([answer.status, answer.over]).toEqual([200, false])
      answer.close()
      expect([answer.over, answer.reusable, String(answer.kept)]).toEqual([true, false, 'hello'])
    }
  })
})

describe('a head that can be read in two ways is no answer', () => {
  const head = (...lines: string[]) => `HTTP/1.1 200 OK\r\n${lines.join('\r\n')}\r\n\r\n`
  test.each([
    ['two lengths', head('content-length: 5', 'content-length: 6')],
    ['two lengths, one of them none', head('content-length: 5', 'content-length: x')],
    ['a list of lengths', head('content-length: 5, 6')],
    ['a list of lengths that agrees and one that does not', head('content-length: 5, 5', 'content-length: 6')],
    ['a list of lengths with nothing in it', head('content-length: 5,')],
    ['one length twice, and chunks', head('content-length: 5', 'content-length: 5', 'transfer-encoding: chunked')],
    ['a length with a sign', head('content-length: +5')],
    ['a length that is none', head('content-length: 5x')],
    ['no length', head('content-length:')],
    ['a length that overflows', head('content-length: 18446744073709551621')],
    ['a length and chunks', head('content-length: 5', 'transfer-encoding: chunked')],
    ['chunks and a length', head('transfer-encoding: chunked', 'content-length: 5')],
    ['a space before the colon', head('content-length : 5')],
    ['a folded length', head('content-length: 0', ' ')],
    ['a folded transfer encoding', head('transfer-encoding: chunked', '\t, gzip')],
    ['a folded line before any header', head(' x: y', 'content-length: 0')],
    ['a control in a folded line', head('x: y', ' a\0b', 'content-length: 0')],
    ['a line without a colon', head('x')],
    ['a header without a name', head(': x')],
    ['a NUL', head('x: a\0b')],
    ['a bare carriage return', head('x: a\rcontent-length: 5')],
    ['a bare carriage return in the status line', 'HTTP/1.1 200 OK\rcontent-length: 5\r\n\r\n'],
    ['a bare line feed and a bare carriage return', 'HTTP/1.1 200 OK\nx: a\rb\n\n'],
    ['a folded length behind a bare line feed', 'HTTP/1.1 200 OK\ncontent-length: 0\n 1\n\n'],
    [
      'a folded line before any header of a second head',
      'HTTP/1.1 103 Hints\r\nx: y\r\n\r\nHTTP/1.1 200 OK\r\n z\r\n\r\n',
    ],
    ['two spaces before the status', 'HTTP/1.1  200 OK\r\n\r\n'],
    ['no space behind the status', 'HTTP/1.1 200OK\r\n\r\n'],
    ['a status of two digits', 'HTTP/1.1 20 OK\r\n\r\n'],
    ['a status of four digits', 'HTTP/1.1 2000 OK\r\n\r\n'],
    ['a status below 100', 'HTTP/1.1 099 OK\r\n\r\n'],
    ['a version that nobody knows', 'HTTP/1.2 200 OK\r\n\r\n'],
    ['another protocol', '220 mail.example.com ESMTP\r\n'],
    ['another protocol, without a line', 'SSH'],
  ])('%s', (_, text) => {
    expect(read(text)).toMatchObject({ status: 0, fault: 'HPE_INVALID', over: true, reusable: false })
  })

  test('another protocol is none either', () => {
    expect(read('HTTP/1.1 101 Switching Protocols\r\n\r\n')).toMatchObject({ status: 0, fault: 'UND_ERR_SOCKET' })
  })
})

test('a header that goes on in further lines is one, and the connection is not used again', () => {
  for (const [fold, end] of [
    [' z', '\r\n'],
    ['\t', '\r\n'],
    [' retry-after: 9', '\n'],
  ]) {
    const text = ['HTTP/1.1 503 No', 'retry-after: 7', 'x: y', fold, ' a', 'content-length: 5', '', 'hello'].join(end)
    const whole = read(text)
    expect(whole).toMatchObject({ status: 503, retryAfter: '7', kept: 'hello', over: true, reusable: false })
    for (let cut = 1; cut < text.length; cut++) expect(read(text, [cut])).toEqual(whole)
  }
})

test('a head of other line ends, or that says its length twice, has its body', () => {
  for (const text of [
    'HTTP/1.1 503 No\nretry-after: 7\ncontent-length: 5\n\nhello',
    'HTTP/1.1 503 No\r\nretry-after: 7\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\nhello',
  ]) {
    const whole = read(text)
    expect(whole).toMatchObject({
      status: 503,
      retryAfter: '7',
      kept: 'hello',
      over: true,
      reusable: false,
      fault: undefined,
    })
    for (let cut = 1; cut < text.length; cut++) expect(read(text, [cut])).toEqual(whole)
  }
})

describe('what an endpoint can make us read is bounded', () => {
  test('a head, in one header, in many, or without any end', () => {
    const fits = `HTTP/1.1 200 OK\r\nx: ${'y'.repeat(65_400)}\r\ncontent-length: 0\r\n\r\n`
    expect(read(fits)).toMatchObject({ status: 200, reusable: true })
    for (const text of ['y'.repeat(65_600), `y\r\n${'a: b\r\n'.repeat(11_000)}`]) {
      const begun = `HTTP/1.1 200 OK\r\nx: ${text}`
      expect(read(begun)).toMatchObject({ status: 0, fault: 'UND_ERR_HEADERS_OVERFLOW' })
      expect(read(begun, [100, 9000, 65_536])).toEqual(read(begun))
    }
  })

  test('sizes of chunks: where there are too many, nothing more is read, wherever the last piece ended', () => {
    // Each takes five bytes beside its one of the body.
    for (const chunks of [3270, 3276, 3277, 3278, 3300]) {
      const begun = Buffer.from(`HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n${'1\r\nx\r\n'.repeat(chunks)}`)
      const answer = new HttpAnswer()
      answer.push(begun, begun.length)
      expect([answer.status, answer.reusable]).toEqual([200, false])
      expect(answer.over).toBe(chunks > 3276)
    }
  })

  test('heads that are no answer', () => {
    const answer = new HttpAnswer()
    const bytes = Buffer.from('HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n')
    let read = 0
    while (!answer.endless && read < 1_000_000) {
      answer.push(bytes, bytes.length)
      read += bytes.length
    }
    expect(read).toBeLessThan(70_000)
    expect([answer.status, answer.over]).toEqual([0, false])
  })

  test('a body, of which 1 KB is kept', () => {
    const long = read(`HTTP/1.1 200 OK\r\ncontent-length: 16384\r\n\r\n${'x'.repeat(16_384)}`, [5000, 5500])
    expect(long).toMatchObject({ over: true, reusable: true, kept: 'x'.repeat(1024) })
    const longer = read(`HTTP/1.1 200 OK\r\ncontent-length: 90000\r\n\r\n${'x'.repeat(16_385)}`)
    expect(longer).toMatchObject({ status: 200, over: true, reusable: false })
  })

  test('the size of a chunk, its extensions and trailers', () => {
    for (const text of [`1;${'x'.repeat(20_000)}`, '1;a=b\r\nx\r\n'.repeat(3000), `0\r\n${'x: y\r\n'.repeat(4000)}`]) {
      expect(read(CHUNKED + text)).toMatchObject({ status: 200, fault: undefined, over: true, reusable: false })
    }
  })
})

const PIECES = [
  ...['\r', '\n', '\r\n', '\0', ' ', '\t', ':', ',', ';', '0', '1', '5', 'a', '\x80', '\xff', '\r\n\r\n', 'HTTP/1.1 200 OK\r\n'],
  ...['content-length: 3\r\n', 'Content-Length:0\r\n', 'transfer-encoding: chunked\r\n', 'connection: close\r\n', '0\r\n\r\n'],
] // prettier-ignore

test('of 5,000 damaged answers none throws, is read in two ways, or leaves a connection in use that it left in doubt', () => {
  const below = numbers(20_261_121)
  let [reusable, refused] = [0, 0]
  for (let n = 0; n < 5000; n++) {
    let text = ANSWERS[below(ANSWERS.length)]!
    for (let edits = below(4); edits >= 0; edits--) {
      const at = below(text.length + 1)
      const piece = PIECES[below(PIECES.length)]!
      text = text.slice(0, at) + piece + text.slice(at + [0, 1, piece.length][below(3)]!)
    }
    const whole = read(text)
    const cuts = Array.from({ length: 1 + below(5) }, () => below(text.length)).sort((a, b) => a - b)
    const cut = read(text, cuts)
    // Cut behind its end, an answer does not see what follows: its connection does.
    expect({ ...cut, reusable: false }, JSON.stringify(text)).toEqual({ ...whole, reusable: false })
    expect(endOfStrictAnswer(text) === text.length, JSON.stringify(text)).toBe(whole.reusable)
    if (whole.status === 0) expect(whole.reusable).toBe(false)
    if (whole.reusable) reusable += 1
    if (whole.fault) refused += 1
  }
  // Else the damage was too little or too much to tell anything.
  expect(reusable).toBeGreaterThan(200)
  expect(refused).toBeGreaterThan(200)
})
