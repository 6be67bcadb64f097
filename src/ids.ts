/**
 * Ids are ULIDs in lower case: 48 bits of time, 80 random bits, Crockford's base 32, sortable as text.
 * Source: https://github.com/ulid/spec
 */
import { randomFillSync } from 'node:crypto'

const ALPHABET = '0123456789abcdefghjkmnpqrstvwxyz'
const TIME_LENGTH = 10
const RANDOM_LENGTH = 16

/** Of the alphabet's letters, by their codes. */
const VALUES = new Uint8Array(128)
for (let value = 0; value < ALPHABET.length; value++) VALUES[ALPHABET.charCodeAt(value)] = value

const pool = new Uint8Array(4096)
let used = pool.length

/** A new id whose text sorts by `nowMs` (milliseconds since 1970). */
export function newId(nowMs: number): string {
  let time = ''
  let rest = Math.floor(nowMs)
  for (let i = 0; i < TIME_LENGTH; i++) {
    time = ALPHABET[rest % 32] + time
    rest = Math.floor(rest / 32)
  }
  if (used + RANDOM_LENGTH > pool.length) {
    randomFillSync(pool)
    used = 0
  }
  let random = ''
  for (let i = 0; i < RANDOM_LENGTH; i++) random += ALPHABET[pool[used++]! & 31]
  return time + random
}

/** No id made before that time (milliseconds since 1970) sorts behind it, none made at it or later before it. */
export function firstIdOf(timeMs: number): string {
  return newId(timeMs).slice(0, TIME_LENGTH) + ALPHABET[0]!.repeat(RANDOM_LENGTH)
}

/** When an id was made, in milliseconds since 1970. */
export function timeOfId(id: string): number {
  let timeMs = 0
  for (let n = 0; n < TIME_LENGTH; n++) timeMs = timeMs * 32 + VALUES[id.charCodeAt(n)]!
  return timeMs
}

/**
 * Whether a text from outside can be an id at all. Asked before it reaches SQL: a server pads or folds what it compares
 * (`x ` equals `x`, `é` fails against an ASCII column), ids are compared by bytes.
 */
export function isIdShaped(value: string): boolean {
  return /^[0-7][0-9a-hjkmnp-tv-z]{25}$/.test(value)
}

/** The public form of an event's id, the `webhook-id` of its deliveries. */
export function publicEventId(eventId: string): string {
  return `evt_${eventId}`
}
