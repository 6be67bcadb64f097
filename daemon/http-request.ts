/**
 * The bytes of a request to an integrator's endpoint.
 */
import { ownBytes } from '../src/own-bytes.ts'
import { literalHost } from '../src/webhooks/endpoint-address.ts'

const HTTPS_PORT = 443

/** RFC 9110 5.1 and 5.5. A line break in either would let a value write headers, or a request, of its own. */
const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/
const NOT_IN_VALUE = /[^\t\x20-\x7e\x80-\xff]/

/** What all requests to one endpoint have in common. */
export interface RequestTarget {
  /** Account and origin: whose connections can carry it. */
  pool: string
  /** An IPv6 literal without its brackets. */
  host: string
  port: number
  /** The beginning of the head: what is the same in all requests. */
  head: Buffer
}

/**
 * @param accountId whose endpoint it is
 * @param headers of all requests to it
 * @throws TypeError when it is no https URL
 * @throws when a header is not one
 */
export function requestTarget(accountId: string, url: URL, headers: Record<string, string>): RequestTarget {
  if (url.protocol !== 'https:') throw new TypeError('an endpoint is called over https alone')
  return {
    pool: `${accountId} ${url.origin}`,
    host: literalHost(url),
    port: Number(url.port || HTTPS_PORT),
    // `host` has the port only where it is not 443.
    head: ownBytes(
      `POST ${url.pathname}${url.search} HTTP/1.1\r\nhost: ${url.host}\r\nconnection: keep-alive\r\n${headerLines(headers)}`,
      'latin1',
    ),
  }
}

/**
 * The rest of the head.
 * @throws when a header is not one
 */
export function headEnd(headers: Record<string, string>, body: Buffer): string {
  return `${headerLines(headers)}content-length: ${body.length}\r\n\r\n`
}

/** @param memory is written to, if it is given and has room */
export function requestBytes({ head }: RequestTarget, end: string, body: Buffer, memory?: RequestMemory): Buffer {
  const bodyAt = head.length + end.length
  const bytes = memory?.take(bodyAt + body.length) ?? Buffer.allocUnsafe(bodyAt + body.length)
  bytes.set(head)
  bytes.write(end, head.length, 'latin1')
  bytes.set(body, bodyAt)
  return bytes
}

/** Longer requests are seldom, and would stay in memory for as long as their connection. */
const MOST_BYTES = 4096

/** For the requests of one connection, one after the other: a new piece of memory for each is what the garbage would be full of. */
export class RequestMemory {
  #all: Buffer | undefined
  /** As much of it as the last request took: most are equally long. */
  #part: Buffer | undefined

  /** @returns undefined when so much is not kept */
  take(bytes: number): Buffer | undefined {
    if (bytes > MOST_BYTES) return undefined
    if (this.#part?.length === bytes) return this.#part
    if (!this.#all || this.#all.length < bytes) this.#all = Buffer.allocUnsafeSlow(Math.min(MOST_BYTES, 2 * bytes))
    this.#part = this.#all.subarray(0, bytes)
    return this.#part
  }
}

function headerLines(headers: Record<string, string>): string {
  let lines = ''
  let values = ''
  for (const name in headers) {
    const value = headers[name]!
    if (!isName(name)) throw invalid()
    lines += `${name}: ${value}\r\n`
    values += value
  }
  // All of them in one look.
  if (NOT_IN_VALUE.test(values)) throw invalid()
  return lines
}

/** Those that have been looked at: a sender has a few, and says them with each request. */
const names = new Set<string>()
const MOST_NAMES = 100

function isName(text: string): boolean {
  if (names.has(text)) return true
  if (!NAME.test(text)) return false
  if (names.size < MOST_NAMES) names.add(text)
  return true
}

function invalid(): Error {
  return Object.assign(new Error('a header is not valid'), { code: 'UND_ERR_INVALID_ARG' })
}
