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
  /** The beginning of the head. */
  head: string
}

/** @throws TypeError when it is no https URL */
export function requestTarget(url: URL): RequestTarget {
  if (url.protocol !== 'https:') throw new TypeError('an endpoint is called over https alone')
  return {
    origin: url.origin,
    host: literalHost(url),
    port: Number(url.port || HTTPS_PORT),
    // `host` has the port only where it is not 443.
    head: `POST ${url.pathname}${url.search} HTTP/1.1\r\nhost: ${url.host}\r\nconnection: keep-alive\r\n`,
  }
}

/** @throws when a header is not one */
export function requestBytes({ head }: RequestTarget, headers: Record<string, string>, body: Buffer): Buffer {
  let text = head
  for (const name in headers) {
    const value = headers[name]!
    if (!NAME.test(name) || NOT_IN_VALUE.test(value)) throw invalid()
    text += `${name}: ${value}\r\n`
  }
  text += `content-length: ${body.length}\r\n\r\n`
  const bytes = Buffer.allocUnsafe(text.length + body.length)
  bytes.write(text, 0, 'latin1')
  bytes.set(body, text.length)
  return bytes
}

function invalid(): Error {
  return Object.assign(new Error('a header is not valid'), { code: 'UND_ERR_INVALID_ARG' })
}
