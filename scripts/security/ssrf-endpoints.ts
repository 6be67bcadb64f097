/**
 * Endpoints that try to make the daemon call an address that it must not call, and the name server's part in it. The list of
 * addresses is written from the registries and not taken from the code that is put to the test.
 */
import { PUBLIC } from './canaries.ts'
import type { NameAnswer } from './name-server.ts'

/** First and last of each block, and the addresses that are worth an attack. */
const REFUSED_V4 = [
  '0.0.0.0', '0.255.255.255', '10.0.0.0', '10.255.255.255', '100.64.0.0', '100.127.255.255', '100.100.100.200', '127.0.0.0',
  '127.0.0.1', '127.255.255.255', '127.255.255.254', '168.63.129.16', '169.254.0.0', '169.254.169.254', '169.254.255.255',
  '172.16.0.0', '172.31.255.255', '192.0.0.0', '192.0.0.192', '192.0.0.255', '192.0.2.0', '192.0.2.255', '192.88.99.0',
  '192.88.99.255', '192.168.0.0', '192.168.255.255', '198.18.0.0', '198.19.255.255', '198.51.100.0', '198.51.100.255',
  '203.0.113.0', '203.0.113.255', '224.0.0.0', '239.255.255.255', '240.0.0.0', '255.255.255.254', '255.255.255.255',
] // prettier-ignore

/** Unspecified, loopback, IPv4 in IPv6 in each of its ways, then block by block. */
const REFUSED_V6 = [
  '::', '::1', '::127.0.0.1', '::ffff:127.0.0.1', '::ffff:169.254.169.254', '::ffff:10.0.0.1', '::ffff:0:127.0.0.1',
  '64:ff9b::127.0.0.1', '64:ff9b::808:808', '64:ff9b:1::1', '100::1', '100:0:0:1::1', '1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff',
  '2001::', '2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff', '2001:db8::', '2001:db8:ffff:ffff:ffff:ffff:ffff:ffff', '2002::',
  '2002:7f00:1::', '2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff', '3fff::', '3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff', '4000::',
  '5f00::1', 'fc00::', 'fd00:ec2::254', 'fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff', 'fe80::1', 'febf:ffff::1', 'fec0::1',
  'ff02::1', 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff',
] // prettier-ignore

export const REFUSED = [...REFUSED_V4, ...REFUSED_V6]

/** Each is 127.0.0.1, 0.0.0.0, ::1 or 169.254.169.254 once it is parsed. */
const SPELLINGS = [
  '127.1', '0x7f.1', '0x7f000001', '2130706433', '017700000001', '0177.0.0.1', '①②⑦.0.0.1', '127。0。0。1', '%31%32%37.0.0.1',
  '127.0.0.1.', '0', '[0:0:0:0:0:0:0:1]', '[::ffff:7f00:1]', '169.254.43518', '0xA9FEA9FE',
] // prettier-ignore

const LOCAL_NAMES = ['localhost', 'localhost.', 'LOCALHOST', 'lo\u00adcalhost', 'api.localhost', 'api.localhost.']

const REDIRECTS = [301, 302, 303, 307, 308]
const REDIRECT_TARGETS = [
  'http://127.0.0.1/', 'https://127.0.0.1/', 'https://169.254.169.254/latest/meta-data/', 'https://[::1]:8443/', '//10.0.0.1/',
  `https://${PUBLIC[0]}/followed`,
] // prettier-ignore

/** Answered with a public address and a refused one in turns, question by question. */
const REBINDING_NAME = 'rebinding.test'

export interface Attack {
  name: string
  endpoints: string[]
  /** What its attempts must be recorded as, in the order of the alphabet. */
  recordedAs: string[]
  /** Whether its endpoints can't even be registered. */
  isLiteral?: true
}

const hostOf = (address: string) => (address.includes(':') ? `[${address}]` : address)
const refusedName = (kind: string, address: string) => `${kind}-${REFUSED.indexOf(address)}.test`
const byName = (kind: string) => REFUSED.map((address) => `https://${refusedName(kind, address)}/`)

export const ATTACKS: Attack[] = [
  {
    name: 'literal addresses',
    endpoints: REFUSED.flatMap((address) => [`https://${hostOf(address)}/`, `https://${hostOf(address)}:8443/`]),
    recordedAs: ['address_refused'],
    isLiteral: true,
  },
  {
    name: 'their other spellings',
    endpoints: SPELLINGS.map((host) => `https://${host}/`),
    recordedAs: ['address_refused'],
    isLiteral: true,
  },
  {
    name: 'localhost',
    endpoints: LOCAL_NAMES.map((host) => `https://${host}/`),
    recordedAs: ['address_refused'],
    isLiteral: true,
  },
  { name: 'names', endpoints: byName('plain'), recordedAs: ['address_refused'] },
  { name: 'names with a public address as well', endpoints: byName('mixed'), recordedAs: ['address_refused'] },
  { name: 'names that are another name', endpoints: byName('alias'), recordedAs: ['address_refused'] },
  {
    name: 'names that are localhost, and no more',
    endpoints: ['https://bare-alias.test/'],
    // The name server does not know localhost's address.
    recordedAs: ['dns'],
  },
  {
    name: 'redirects',
    endpoints: REDIRECTS.flatMap((status) =>
      REDIRECT_TARGETS.map((to) => `https://${PUBLIC[0]}/redirect/${status}/${encodeURIComponent(to)}`),
    ),
    recordedAs: ['http_status'],
  },
]

export const REBINDING: Attack = {
  name: 'rebinding',
  endpoints: [`https://${REBINDING_NAME}/`],
  recordedAs: ['address_refused', 'ok'],
}

/** Must be reached, or the rest shows nothing. */
export const PERMITTED: Attack = {
  name: 'public addresses',
  endpoints: [...PUBLIC.map(hostOf), 'public.test', 'public-alias.test'].map((host) => `https://${host}/`),
  recordedAs: ['ok'],
}

/** For the receiver's certificate. */
export const PERMITTED_NAMES = ['public.test', 'public-alias.test', REBINDING_NAME]

/** What the name server says. */
export function lyingAnswers(): (name: string, family: 4 | 6) => NameAnswer | undefined {
  let asked = 0
  return (name, family) => {
    if (name === 'public.test') return { addresses: [...PUBLIC] }
    if (name === 'public-alias.test') return { cname: 'public.test', addresses: [...PUBLIC] }
    if (name === 'bare-alias.test') return { cname: 'localhost' }
    if (name === REBINDING_NAME) {
      if (family === 6) return {}
      asked += 1
      return { addresses: [asked % 2 === 1 ? PUBLIC[0] : REFUSED_V4[asked % REFUSED_V4.length]!] }
    }
    const [, kind, index] = /^(plain|mixed|alias)-(\d+)\.test$/.exec(name) ?? []
    const address = REFUSED[Number(index)]
    if (kind === undefined || address === undefined) return undefined
    if (kind === 'alias') return { cname: 'localhost', addresses: [address] }
    return { addresses: kind === 'mixed' ? [...PUBLIC, address] : [address] }
  }
}
