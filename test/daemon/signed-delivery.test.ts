import { expect, test } from 'vitest'
import { SignedRequest } from '../../daemon/signed-delivery.ts'
import type { PendingDelivery } from '../../src/deliveries/delivery-queue-repository.ts'
import { prepareKey, sign } from '../../src/deliveries/signature.ts'
import { newId, publicEventId } from '../../src/ids.ts'

const startedAt = new Date('2026-11-20T10:00:00.700Z')
const [current, before] = [prepareKey(Buffer.alloc(32, 1)), prepareKey(Buffer.alloc(32, 2))]
const settings = {
  accountId: newId(0),
  endpoint: 'https://endpoint.example.in/hooks',
  signingKeys: [
    { key: current, expiresAt: null },
    { key: before, expiresAt: new Date('2026-11-20T10:00:05Z') },
  ],
}
const delivery = { eventId: newId(1), body: Buffer.from('{}') } as PendingDelivery

function headersAfter(ms: number): Record<string, string> {
  const nowMs = startedAt.getTime() + ms
  return new SignedRequest(settings, delivery, startedAt, { nowMs: () => nowMs, now: () => new Date(nowMs) }).headers
}

test.each([
  ['at once', 0, 0, [current, before]],
  ['within a second', 1000, 0, [current, before]],
  ['after a connection that took 1.2 s', 1200, 1, [current, before]],
  ['after one that took until a key was none any more', 7000, 7, [current]],
  ['where the clock was set back', -60_000, 0, [current, before]],
])('a request is signed with a time that is near: %s', (_, afterMs, seconds, keys) => {
  const [id, timestamp] = [publicEventId(delivery.eventId), Date.UTC(2026, 10, 20, 10) / 1000 + seconds]
  expect(headersAfter(afterMs)).toEqual({
    'webhook-id': id,
    'webhook-timestamp': String(timestamp),
    'webhook-signature': sign(keys, id, timestamp, delivery.body),
  })
})
