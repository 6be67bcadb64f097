/**
 * The address guard against an oracle that works with numbers: any address, and the first and last of each block with their
 * neighbours. ADDRESS_RUNS sets how many of each family are drawn.
 */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { createAddressPolicy } from '../../src/webhooks/endpoint-address.ts'

const RUNS = Number(process.env.ADDRESS_RUNS ?? 20_000)
const policy = createAddressPolicy()

/** First and last, as the registries have them. */
const REFUSED_V4: [number, number][] = [
  [0x00000000, 0x00ffffff],
  [0x0a000000, 0x0affffff],
  [0x64400000, 0x647fffff],
  [0x7f000000, 0x7fffffff],
  [0xa83f8110, 0xa83f8110],
  [0xa9fe0000, 0xa9feffff],
  [0xac100000, 0xac1fffff],
  [0xc0000000, 0xc00000ff],
  [0xc0000200, 0xc00002ff],
  [0xc0586300, 0xc05863ff],
  [0xc0a80000, 0xc0a8ffff],
  [0xc6120000, 0xc613ffff],
  [0xc6336400, 0xc63364ff],
  [0xcb007100, 0xcb0071ff],
  [0xe0000000, 0xffffffff],
]
/** By their first 32 bits. */
const REFUSED_V6: [number, number][] = [
  [0x00000000, 0x1fffffff],
  [0x20010000, 0x200101ff],
  [0x20010db8, 0x20010db8],
  [0x20020000, 0x2002ffff],
  [0x3fff0000, 0x3fff0fff],
  [0x40000000, 0xffffffff],
]

const isAmong = (blocks: [number, number][], first: number) => blocks.some(([from, to]) => from <= first && first <= to)
const edgesOf = (blocks: [number, number][]) =>
  blocks
    .flatMap((edges) => edges.flatMap((edge) => [edge - 1, edge, edge + 1]))
    .filter((n) => n >= 0 && n <= 0xffffffff)
const drawn = (blocks: [number, number][]) =>
  fc.oneof({ weight: 4, arbitrary: fc.integer({ min: 0, max: 0xffffffff }) }, fc.constantFrom(...edgesOf(blocks)))

const dotted = (n: number) => [n >>> 24, (n >>> 16) & 255, (n >>> 8) & 255, n & 255].join('.')
const groups = (words: number[]) => words.map((n) => [n >>> 16, n & 0xffff].map((half) => half.toString(16)).join(':')).join(':') // prettier-ignore

test('of IPv4 exactly the special blocks are refused', () => {
  const property = fc.property(drawn(REFUSED_V4), (n) => {
    expect([dotted(n), policy.allows(dotted(n))]).toEqual([dotted(n), !isAmong(REFUSED_V4, n)])
  })
  fc.assert(property, { numRuns: RUNS })
})

test('of IPv6 exactly the public part without its special blocks is allowed, in any spelling', () => {
  const rest = fc.tuple(
    ...Array.from({ length: 3 }, () => fc.oneof(fc.constantFrom(0, 0xffffffff), fc.nat(0x7fffffff))),
  )
  const property = fc.property(drawn(REFUSED_V6), rest, (first, others) => {
    const long = groups([first, ...others])
    const short = new URL(`http://[${long}]/`).hostname.slice(1, -1)
    for (const address of [long, short, long.toUpperCase()]) {
      expect([address, policy.allows(address)]).toEqual([address, !isAmong(REFUSED_V6, first)])
    }
  })
  fc.assert(property, { numRuns: RUNS })
})
