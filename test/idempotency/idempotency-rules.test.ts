import { createHash } from 'node:crypto'
import { expect, test } from 'vitest'
import { deriveKeys } from '../../src/crypto.ts'
import { DomainError } from '../../src/errors.ts'
import {
  formerHash,
  hashRequest,
  isExpired,
  KEPT_MS,
  refusalToKeep,
  replayed,
  requireSoundKey,
  statusOf,
} from '../../src/idempotency/idempotency-rules.ts'

const keys = deriveKeys(Buffer.alloc(32, 1))

test('a key is 1 to 255 visible ASCII characters', () => {
  for (const key of ['a', '~!"#', 'x'.repeat(255)]) expect(() => requireSoundKey(key)).not.toThrow()
  for (const key of ['', 'a b', 'a\n', 'é', 'x'.repeat(256), 'one, two']) {
    expect(() => requireSoundKey(key)).toThrow('1 to 255 visible characters')
  }
})

test('bodies are the same however their fields are ordered, at any depth, and other ones are not', () => {
  const hash = (text: string) => hashRequest(keys, { body: JSON.parse(text), path: {}, query: {} }).toString('hex')
  expect(hash('{"a":1,"b":{"c":[1,2],"d":null}}')).toBe(hash('{ "b": {"d":null, "c":[1,2]}, "a": 1 }'))
  const others = ['{"a":1}', '{"a":"1"}', '{"a":[1]}', '{"a":null}', '{}', '{"a":[1,2]}', '{"a":[2,1]}']
  expect(new Set(others.map(hash)).size).toBe(others.length)
})

test('requests about two records are two, whatever their bodies; no body is an empty one', () => {
  const hash = (path: object, query: object = {}, body?: unknown) =>
    hashRequest(keys, { body, path: { ...path }, query: { ...query } }).toString('hex')
  const all = [
    hash({ billId: 'a' }),
    hash({ billId: 'b' }),
    hash({}, { labID: 'a' }),
    hash({}, { labID: 'b' }),
    hash({}),
  ]
  expect(new Set(all).size).toBe(all.length)
  expect(hash({ billId: 'a' }, {}, {})).toBe(all[0])
})

test('nobody without the key of the service can try out what a hash is of, nor is it that of another service', () => {
  const request = { body: { contact: '9876543210' }, path: { accountId: 'a' }, query: {} }
  const plain = createHash('sha256')
    .update(JSON.stringify({ body: request.body, path: request.path }))
    .digest()
  const other = deriveKeys(Buffer.alloc(32, 2))
  for (const hash of [plain, formerHash(request), hashRequest(other, request)]) {
    expect(hashRequest(keys, request).equals(hash)).toBe(false)
  }
})

test('a key stands for 24 hours, and no millisecond longer', () => {
  const now = new Date('2026-11-20T10:00:00.000Z')
  expect(isExpired(new Date(now.getTime() - KEPT_MS + 1), now)).toBe(false)
  expect(isExpired(new Date(now.getTime() - KEPT_MS), now)).toBe(true)
})

test('a refusal of the request itself is kept; what says nothing of it is not', () => {
  const refusal = new DomainError('conflict', 'duplicate_entry', 'there is one already')
  const kept = refusalToKeep(refusal)!
  expect(statusOf(kept)).toBe(409)
  for (const kind of ['unauthorized', 'too_many_requests', 'unavailable'] as const) {
    expect(refusalToKeep(new DomainError(kind, 'x', 'x'))).toBeUndefined()
  }
  expect(refusalToKeep(new Error('lost'))).toBeUndefined()
})

test('a repeat gets the first answer, marked as one', () => {
  const first = { reply: { status: 201, body: { id: 1 }, headers: { location: '/x' } } }
  expect(replayed(first, 0).answer).toEqual({
    status: 201,
    body: { id: 1 },
    headers: { location: '/x', 'Idempotent-Replayed': 'true' },
  })
  const refused = replayed(refusalToKeep(new DomainError('conflict', 'duplicate_entry', 'there is one'))!, 0).answer
  expect(refused).toMatchObject({ code: 'duplicate_entry', extras: { headers: { 'Idempotent-Replayed': 'true' } } })
})

test('what is not the last word yet is not repeated, unless whoever was to say it has not for too long', () => {
  const soFar = { reply: { status: 201, body: { state: 'running' } }, unfinishedUntilMs: 5000 }
  expect(replayed(soFar, 4999).answer).toMatchObject({ code: 'idempotency_in_progress' })
  expect(replayed(soFar, 5000).answer).toMatchObject({ status: 201, body: { state: 'running' } })
})
