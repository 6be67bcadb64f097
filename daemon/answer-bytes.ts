/**
 * What nearly every answer says, read from its bytes: a text for each part would be most of what an answer leaves to be collected.
 */
const CONTENT_LENGTH = Buffer.from('content-length')
export const CONNECTION = Buffer.from('connection')
export const KEEP_ALIVE = Buffer.from('keep-alive')

export const TAB = 9

/** RFC 9110 5.6.2: what a header's name consists of. */
export const IS_TOKEN = new Uint8Array(256)
for (const char of "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
  IS_TOKEN[char.charCodeAt(0)] = 1
/** RFC 9110 5.5: what a header's value consists of. */
export const IS_TEXT = new Uint8Array(256).fill(1, 32)
IS_TEXT[TAB] = 1
IS_TEXT[127] = 0

/** Whether this may stand in a header's value. */
export function isValue(bytes: Buffer, at: number, end: number): boolean {
  for (let n = at; n < end; n++) if (IS_TEXT[bytes[n]!] === 0) return false
  return true
}

/** In any case. @param text in lower case */
export function isText(bytes: Buffer, at: number, end: number, text: Buffer): boolean {
  if (end - at !== text.length) return false
  for (let n = 0; n < text.length; n++) {
    const byte = bytes[at + n]!
    if (byte !== text[n] && !(byte >= 65 && byte <= 90 && byte + 32 === text[n])) return false
  }
  return true
}

/** What most answers begin with. */
export const HTTP_1_1 = Buffer.from('HTTP/1.1 ')

export function begins(bytes: Buffer, at: number, end: number, text: Buffer): boolean {
  if (end - at < text.length) return false
  for (let n = 0; n < text.length; n++) if (bytes[at + n] !== text[n]) return false
  return true
}

/** Three digits, and then nothing or a blank. */
export function statusAt(bytes: Buffer, at: number, end: number): number | undefined {
  let status = 0
  for (let n = at; n < at + 3; n++) {
    const digit = n < end ? bytes[n]! - 48 : -1
    if (digit < 0 || digit > 9) return undefined
    status = 10 * status + digit
  }
  return status < 100 || (at + 3 < end && bytes[at + 3] !== 32) ? undefined : status
}

/** A server says the same in each of its answers. */
let lastKeepAlive = ''
let lastKeepAliveSeconds: number | undefined

export function keepAliveSecondsOf(value: string): number | undefined {
  if (value !== lastKeepAlive) {
    const seconds = /timeout[\t ]?=[\t ]?"?(\d{1,9})/i.exec(value)
    lastKeepAlive = value
    lastKeepAliveSeconds = seconds ? Number(seconds[1]) : undefined
  }
  return lastKeepAliveSeconds
}

export function nameOf(bytes: Buffer, at: number, end: number): string {
  if (isText(bytes, at, end, CONTENT_LENGTH)) return 'content-length'
  if (isText(bytes, at, end, KEEP_ALIVE)) return 'keep-alive'
  return bytes.toString('latin1', at, end).toLowerCase()
}
