import { createHmac, randomBytes } from 'node:crypto'
import { Webhook } from 'standardwebhooks'
import { expect, test } from 'vitest'
import { formatSecret, prepareKey, sign } from '../../src/deliveries/signature.ts'

const body = Buffer.from('{"id":"evt_1","name":"Asha – é"}', 'utf8')
const timestamp = Math.floor(Date.now() / 1000)

function headers(signature: string): Record<string, string> {
  return { 'webhook-id': 'evt_1', 'webhook-timestamp': String(timestamp), 'webhook-signature': signature }
}

test('the public library verifies a signature', () => {
  const key = randomBytes(32)
  const library = new Webhook(formatSecret(key))
  expect(library.verify(body, headers(sign([key], 'evt_1', timestamp, body)))).toEqual({
    id: 'evt_1',
    name: 'Asha – é',
  })
})

test('our signature is the one that the public library makes', () => {
  const key = randomBytes(32)
  const library = new Webhook(formatSecret(key))
  expect(sign([key], 'evt_1', timestamp, body)).toBe(library.sign('evt_1', new Date(timestamp * 1000), body))
})

test('during a rotation both secrets verify the same request', () => {
  const keys = [randomBytes(32), randomBytes(32)]
  const signature = sign(keys, 'evt_1', timestamp, body)
  expect(signature.split(' ')).toHaveLength(2)
  for (const key of keys) expect(() => new Webhook(formatSecret(key)).verify(body, headers(signature))).not.toThrow()
})

test('one changed bit in body, id or time is refused', () => {
  const key = randomBytes(32)
  const library = new Webhook(formatSecret(key))
  const signed = headers(sign([key], 'evt_1', timestamp, body))
  for (let index = 0; index < body.length; index++) {
    const changed = Buffer.from(body)
    changed[index]! ^= 1
    expect(() => library.verify(changed, signed)).toThrow()
  }
  expect(() => library.verify(body, { ...signed, 'webhook-id': 'evt_2' })).toThrow()
  expect(() => library.verify(body, { ...signed, 'webhook-timestamp': String(timestamp + 1) })).toThrow()
})

test('another webhook’s secret is refused', () => {
  const signature = sign([randomBytes(32)], 'evt_1', timestamp, body)
  expect(() => new Webhook(formatSecret(randomBytes(32))).verify(body, headers(signature))).toThrow()
})

test('it is HMAC-SHA256 for keys and bodies of every length, prepared or not, also after a longer body', () => {
  for (const keyBytes of [1, 24, 32, 63, 64, 65, 200]) {
    for (const bodyBytes of [0, 1, 1024, 40_000, 20_480, 5]) {
      const key = randomBytes(keyBytes)
      const text = randomBytes(bodyBytes)
      const expected = `v1,${createHmac('sha256', key).update(`evt_é.${timestamp}.`).update(text).digest('base64')}`
      expect(sign([key], 'evt_é', timestamp, text)).toBe(expected)
      expect(sign([prepareKey(key)], 'evt_é', timestamp, text)).toBe(expected)
    }
  }
})
