/**
 * The bytes of a request to an integrator's endpoint.
 */
import { literalHost } from '../src/webhooks/endpoint-address.ts'

const HTTPS_PORT = 443

/** RFC 9110 5.1 and 5.5. A line break in either would let a value write headers, or a request, of its own. */
const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/
const NOT_IN_VALUE = /[^\t\x20-\x7e\x80-\xff]/

/** What all requests to one endpoint have in common. */
export interface RequestTarget {
  /** Whose connections can carry it. */
  origin: string
  /** An IPv6 literal without its brackets. */
  host: string
  port: number
  /** The beginning of the head: what is the same in all requests. */
  head: Buffer
}

/**
 * @param headers of all requests to it
 * @throws TypeError when it is no https URL
 * @throws when a header is not one
 */
export function requestTarget(url: URL, headers: Record<string, string>): RequestTarget {
  if (url.protocol !== 'https:') throw new TypeError('an endpoint is called over https alone')
  return {
    origin: url.origin,
    host: literalHost(url),
    port: Number(url.port || HTTPS_PORT),
    // `host` has the port only where it is not 443.
    head: Buffer.from(
      `POST ${url.pathname}${url.search} HTTP/1.1\r\nhost: ${url.host}\r\nconnection: keep-alive\r\n${headerLines(headers)}`,
      'latin1',
    ),
  }
}

/** @throws when a header is not one */
export function requestBytes({ head }: RequestTarget, headers: Record<string, string>, body: Buffer): Buffer {
  const text = `${headerLines(headers)}content-length: ${body.length}\r\n\r\n`
  const bodyAt = head.length + text.length
  const bytes = Buffer.allocUnsafe(bodyAt + body.length)
  bytes.set(head)
  bytes.write(text, head.length, 'latin1')
  bytes.set(body, bodyAt)
  return bytes
}

function headerLines(headers: Record<string, string>): string {
  let lines = ''
  for (const name in headers) {
    const value = headers[name]!
    if (!NAME.test(name) || NOT_IN_VALUE.test(value)) throw invalid()
    lines += `${name}: ${value}\r\n`
  }
  return lines
}

function invalid(): Error {
  return Object.assign(new Error('a header is not valid'), { code: 'UND_ERR_INVALID_ARG' })
}
