import { networkInterfaces } from 'node:os'
import { expect, test } from 'vitest'
import { hintHostOf } from '../../daemon/hint-listener.ts'

type Interfaces = ReturnType<typeof networkInterfaces>

const address = (text: string, internal: boolean) =>
  ({ address: text, internal, family: text.includes(':') ? 'IPv6' : 'IPv4' }) as NonNullable<Interfaces[string]>[number]

const CONTAINER: Interfaces = {
  lo: [address('127.0.0.1', true), address('::1', true)],
  eth0: [address('fe80::1', false), address('172.18.0.4', false)],
}

test('others send hints to where a daemon listens', () => {
  expect(hintHostOf('127.0.0.1', CONTAINER)).toBe('127.0.0.1')
  expect(hintHostOf('10.0.0.7', CONTAINER)).toBe('10.0.0.7')
})

test('one that listens on all addresses, as in a container, is sent them at one that others can reach', () => {
  for (const all of ['0.0.0.0', '::']) expect(hintHostOf(all, CONTAINER)).toBe('172.18.0.4')
  expect(hintHostOf('0.0.0.0', { lo: CONTAINER.lo! })).toBe('127.0.0.1')
})
