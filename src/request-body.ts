/**
 * From the bytes of a request to a JSON object, within the limits of decisions 9. Runs after authentication, so that nobody
 * without a token can make us read or parse anything.
 */
import type { IncomingMessage } from 'node:http'
import { badRequest, clipped, DomainError } from './errors.ts'
import { isKnownPlace, type BodyPath, type JsonSchema } from './known-fields.ts'
import { findRepeatedName } from './repeated-names.ts'

const MAX_BYTES = 256 * 1024
const MAX_NESTING = 32
const MAX_ITEMS = 100
const MAX_CHARACTERS = 4096

/** Fields whose names and values the caller chooses: what is in them is kept or refused, never ignored. */
const NAMED_BY_CALLER: (string | number)[] = ['customFields', 'variables']

/** Parameters say nothing of JSON (RFC 8259 11), but for a charset that is neither its own nor a part of that. */
const JSON_TYPE = /^application\/json[ \t]*(;[^,]*)?$/i
const OTHER_CHARSET = /;[ \t]*charset[ \t]*=(?![ \t]*("(utf-?8|us-ascii)"|utf-?8|us-ascii)[ \t]*(;|$))/i

/** A text in quotes (RFC 9110 5.6.4); where nothing ends it, all that follows. */
const QUOTED = /"(?:[^"\\]|\\[^])*("?)/g

export type JsonObject = Record<string, unknown>

/** Whether the operation's schema says something of a place in its body. */
type IsKnown = (path: BodyPath) => boolean

/**
 * @param schema of the operation's body; undefined: it has none, and what comes is ignored
 * @throws 415 for another content type, 413 for too many bytes, 400 for what is no JSON object or breaks a limit
 */
export async function readJsonBody(request: IncomingMessage, schema: JsonSchema | undefined): Promise<JsonObject> {
  requireJson(request)
  return parseBody(await readBytes(request), schema)
}

/**
 * The same where a body need not be. One that comes in chunks is none when the first of them is the last.
 * @returns undefined where there is none, whatever its type is said to be
 */
export async function readOptionalJsonBody(
  request: IncomingMessage,
  schema: JsonSchema | undefined,
): Promise<JsonObject | undefined> {
  if (!hasBody(request)) return undefined
  if (request.headers['transfer-encoding'] === undefined) return readJsonBody(request, schema)
  requireChunksAlone(request)
  const bytes = await readBytes(request)
  if (bytes.length === 0) return undefined
  requireJson(request)
  return parseBody(bytes, schema)
}

/** Came whole, and is refused for what it is: the same text is refused again. */
export class RefusedBody extends DomainError {
  readonly bytes: Buffer

  constructor({ kind, code, message, extras }: DomainError, bytes: Buffer) {
    super(kind, code, message, extras)
    this.bytes = bytes
  }
}

/** @throws RefusedBody */
function parseBody(bytes: Buffer, schema: JsonSchema | undefined): JsonObject {
  try {
    return requireSound(decode(bytes), schema)
  } catch (error) {
    throw error instanceof DomainError ? new RefusedBody(error, bytes) : error
  }
}

function requireSound(text: string, schema: JsonSchema | undefined): JsonObject {
  const body = parseJson(text)
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    throw badRequest('the body must be a JSON object')
  }
  const isKnown: IsKnown = (path) => isKnownPlace(schema, path)
  requireWithinLimits(body, [], isKnown)
  const repeated = findRepeatedName(text, isKnown)
  if (repeated) throw fault(repeated, 'must be there only once')
  return body as JsonObject
}

/** Whether the request has a body, which may still be empty when it comes in chunks (RFC 9112 6.3). */
export function hasBody(request: IncomingMessage): boolean {
  return request.headers['transfer-encoding'] !== undefined || Number(request.headers['content-length'] ?? 0) > 0
}

function requireJson(request: IncomingMessage): void {
  const contentType = withoutQuotedSeparators(request.headers['content-type'] ?? '')
  const isJson = JSON_TYPE.test(contentType) && !OTHER_CHARSET.test(contentType)
  if (!isJson) throw unsupportedMediaType('the content type must be application/json')
  requireIdentity(request)
}

/** Commas and semicolons separate nothing within quotes, and are dots there. */
function withoutQuotedSeparators(contentType: string): string {
  return contentType.replace(QUOTED, (text, end) => (end === '' ? text : text.replace(/[,;]/g, '.')))
}

/** Without its parameters, in lower case. */
export function mediaTypeOf(request: IncomingMessage): string | undefined {
  return request.headers['content-type']?.split(';')[0]!.trim().toLowerCase()
}

/** @throws 415 for another content type */
export function requireMediaType(request: IncomingMessage, mediaType: string): void {
  if (mediaTypeOf(request) !== mediaType) {
    throw unsupportedMediaType(`the content type must be ${mediaType}`)
  }
  requireIdentity(request)
}

function requireIdentity(request: IncomingMessage): void {
  // Where it is empty it names no coding.
  if ((request.headers['content-encoding'] || 'identity').toLowerCase() !== 'identity') {
    throw unsupportedMediaType('the body must not have a Content-Encoding')
  }
  requireChunksAlone(request)
}

/** Node takes the chunks apart, and leaves to us what else was done to the body. */
function requireChunksAlone(request: IncomingMessage): void {
  if ((request.headers['transfer-encoding'] ?? 'chunked').toLowerCase() !== 'chunked') {
    throw unsupportedMediaType('the body must not have a Transfer-Encoding but chunked')
  }
}

function unsupportedMediaType(details: string): DomainError {
  return new DomainError('unsupported_media_type', 'unsupported_media_type', details)
}

async function readBytes(request: IncomingMessage): Promise<Buffer> {
  if (Number(request.headers['content-length'] ?? 0) > MAX_BYTES) throw tooLarge()
  return new Promise((resolve, reject) => {
    if (request.destroyed) return reject(cutShort())
    const chunks: Buffer[] = []
    let bytes = 0
    request.on('data', (chunk: Buffer) => {
      bytes += chunk.length
      // What follows is still read off the wire, so that the answer arrives, but kept no more.
      if (bytes > MAX_BYTES) reject(tooLarge())
      else chunks.push(chunk)
    })
    request.on('end', () => resolve(Buffer.concat(chunks)))
    request.on('error', () => reject(cutShort()))
    request.on('close', () => request.complete || reject(cutShort()))
  })
}

function tooLarge(): DomainError {
  return new DomainError('payload_too_large', 'payload_too_large', `the body is larger than ${MAX_BYTES} bytes`)
}

/** Nobody is there to read it; it ends the work and gives the log line a status. */
function cutShort(): DomainError {
  return badRequest('the body ended early')
}

const utf8 = new TextDecoder('utf-8', { fatal: true })

function decode(bytes: Buffer): string {
  try {
    return utf8.decode(bytes)
  } catch {
    throw badRequest('the body is not valid UTF-8', 'malformed_json')
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    // The parser's own words quote the body, which may hold a patient's data.
    throw badRequest('the body is not valid JSON', 'malformed_json')
  }
}

/**
 * Walks everything in the body. Size and depth are limited anywhere; what else is refused is so where the schema knows the place, since
 * everything else is ignored, whatever it is. Takes `__proto__` keys out: as data they mean nothing, and what is not there can't
 * reach a careless merge. In a value that is the caller's own they are kept: nothing reads it.
 * @param path of the value; changed, and left as it was
 */
function requireWithinLimits(value: unknown, path: (string | number)[], isKnown: IsKnown, isChosen = false): void {
  if (typeof value === 'string') {
    requireText(value, path, isKnown)
  } else if (typeof value === 'number') {
    if (!Number.isFinite(value) && isKnown(path)) throw fault(path, 'must be a finite number')
  } else if (typeof value === 'object' && value !== null) {
    // The outermost field: enough to find what is nested too deep, and short.
    if (path.length >= MAX_NESTING) {
      throw fault(path.slice(0, 1), `must not be nested deeper than ${MAX_NESTING} levels`)
    }
    if (Array.isArray(value)) {
      if (value.length > MAX_ITEMS && isKnown(path)) throw fault(path, `must have at most ${MAX_ITEMS} items`)
      for (const [index, item] of value.entries()) {
        path.push(index)
        requireWithinLimits(item, path, isKnown, isChosen)
        path.pop()
      }
    } else {
      const isNamedByCaller = path.length === 1 && NAMED_BY_CALLER.includes(path[0]!) && isKnown(path)
      if (Object.hasOwn(value, '__proto__')) {
        if (isNamedByCaller) throw fault([...path, '__proto__'], 'is unknown')
        if (!isChosen) delete (value as JsonObject)['__proto__']
      }
      for (const [key, item] of Object.entries(value)) {
        path.push(key)
        requireText(key, path, isKnown)
        requireWithinLimits(item, path, isKnown, isChosen || isNamedByCaller)
        path.pop()
      }
    }
  }
}

function requireText(value: string, path: BodyPath, isKnown: IsKnown): void {
  const message = textFault(value)
  if (message !== undefined && isKnown(path)) throw fault(path, message)
}

function textFault(value: string): string | undefined {
  // Characters as JSON Schema counts them: code points.
  if (value.length > MAX_CHARACTERS && [...value].length > MAX_CHARACTERS) {
    return `must have at most ${MAX_CHARACTERS} characters`
  }
  if (!value.isWellFormed()) return 'must be valid Unicode, it has half a surrogate pair'
  // No text of a person has it, and much of what reads our rows and mails ends a text there.
  return value.includes('\0') ? 'must not contain the character U+0000' : undefined
}

function fault(path: BodyPath, message: string): DomainError {
  const field = path.map((step) => clipped(String(step))).join('.')
  return badRequest(`${field} ${message}`, 'invalid_request', field, message)
}
