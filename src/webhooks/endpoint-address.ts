/**
 * Which addresses may be called (decisions 5). Used on literals at registration and on every resolved address at
 * each connection. The check is made on the parsed form, never on text: `127.1`, `0x7f000001` and `[::ffff:127.0.0.1]` are
 * all parsed before they get here.
 */
import { BlockList, isIP } from 'node:net'
import { networkInterfaces } from 'node:os'
import { clipped } from '../errors.ts'

/** Sources: IANA's IPv4 special-purpose registry, and 168.63.129.16 (a cloud provider's host agent). */
const REFUSED_IPV4: [string, number][] = [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['168.63.129.16', 32],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.88.99.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  ['224.0.0.0', 4],
  ['240.0.0.0', 4],
]

/** Everything outside 2000::/3 is refused anyway; these are the special blocks inside it. */
const REFUSED_IPV6: [string, number][] = [
  ['2001::', 23],
  ['2001:db8::', 32],
  ['2002::', 16],
  ['3fff::', 20],
]

const refused4 = new BlockList()
for (const [address, prefix] of REFUSED_IPV4) refused4.addSubnet(address, prefix, 'ipv4')
const refused6 = new BlockList()
for (const [address, prefix] of REFUSED_IPV6) refused6.addSubnet(address, prefix, 'ipv6')
const globalUnicast = new BlockList()
globalUnicast.addSubnet('2000::', 3, 'ipv6')

export interface AddressPolicy {
  allows(address: string): boolean
}

export interface AddressRanges {
  /** Open besides public addresses, e.g. `10.0.0.0/8`; for private installations. */
  allow?: string[]
  /** Never called, public or opened. */
  deny?: string[]
  /** Addresses of this machine: refused where they are public too, unless they are opened. */
  own?: string[]
}

export function createAddressPolicy({ allow = [], deny = [], own = [] }: AddressRanges = {}): AddressPolicy {
  const isOpened = inRanges(allow)
  const isDenied = inRanges(deny)
  const isOwn = inRanges(own.map((address) => `${address}/${isIP(address) === 4 ? 32 : 128}`))
  return {
    allows(address) {
      const family = isIP(address)
      // A mapped address (::ffff:10.0.0.1) is outside 2000::/3 and so refused; BlockList would match it against the
      // IPv4 rules when asked as IPv6, so mapped forms never reach the opened ranges.
      if (family === 0 || (family === 6 && isMapped(address)) || isDenied(address)) return false
      return isOpened(address) || (isPublic(address) && !isOwn(address))
    },
  }
}

function isPublic(address: string): boolean {
  if (isIP(address) === 4) return !refused4.check(address, 'ipv4')
  return globalUnicast.check(address, 'ipv6') && !refused6.check(address, 'ipv6')
}

/** One list for each family: a list of both would match an IPv4 rule against mapped addresses. */
function inRanges(cidrs: string[]): (address: string) => boolean {
  const ranges = { ipv4: new BlockList(), ipv6: new BlockList() }
  for (const cidr of cidrs) {
    const [address, prefix] = cidr.split('/') as [string, string]
    const family = familyOf(address)
    ranges[family].addSubnet(address, Number(prefix), family)
  }
  return (address) => ranges[familyOf(address)].check(address, familyOf(address))
}

function familyOf(address: string): 'ipv4' | 'ipv6' {
  return isIP(address) === 4 ? 'ipv4' : 'ipv6'
}

/** What an API lets be registered and a daemon calls. */
export function deliveryAddresses(settings: {
  deliveryAllowCidrs: string[]
  deliveryDenyCidrs: string[]
}): AddressPolicy {
  const { deliveryAllowCidrs: allow, deliveryDenyCidrs: deny } = settings
  return createAddressPolicy({ allow, deny, own: ownAddresses() })
}

/** Those of this machine that others can reach it by, as they are now. */
function ownAddresses(): string[] {
  const found = Object.values(networkInterfaces()).flatMap((interfaces) => interfaces ?? [])
  return found.flatMap(({ address, internal }) => (internal ? [] : [address]))
}

function isMapped(address: string): boolean {
  return /^::ffff:/i.test(new URL(`http://[${address.split('%', 1)[0]}]/`).hostname.slice(1))
}

export const ENDPOINT_MAX_LENGTH = 2048
const LOWEST_UNPRIVILEGED_PORT = 1024
const HTTPS_PORT = 443

/** The end of a complaint, for its owner; nothing of an endpoint that may have a password in it. */
export function notThis(endpoint: string): string {
  return endpoint.includes('@') ? '' : `, not ${clipped(endpoint)}`
}

/**
 * Why an endpoint can't be registered, as a sentence for its owner, or undefined when it can. Names are judged when they
 * are resolved, at each connection.
 */
export function refusedEndpoint(endpoint: string, policy: AddressPolicy): string | undefined {
  if ([...endpoint].length > ENDPOINT_MAX_LENGTH) return `endpoint must have at most ${ENDPOINT_MAX_LENGTH} characters`
  // A third slash is what parsers disagree about, and the URL standard skips: `https:///x` would call the host x.
  if (!/^https:\/\/[^/]/i.test(endpoint)) {
    return `endpoint must be an absolute URL that begins with https://${notThis(endpoint)}`
  }
  // What these mean they disagree about as well.
  if (/[\s\\\u0000-\u001f\u007f]/.test(endpoint)) {
    return 'endpoint must not contain spaces, control characters or backslashes: in a path they are written %20 and the like'
  }
  if (!URL.canParse(endpoint)) {
    return `endpoint must be a URL with a host, and a port up to 65535 where it has one${notThis(endpoint)}`
  }
  const url = new URL(endpoint)
  if (url.protocol !== 'https:') return `endpoint must begin with https://${notThis(endpoint)}`
  // Also an empty one (`https://@host`), which the parser forgets.
  if (url.username || url.password || /^https:\/\/[^/?#]*@/i.test(endpoint))
    return 'endpoint must not contain a user name or a password'
  if (endpoint.includes('#')) return 'endpoint must not contain a fragment (#)'
  const port = Number(url.port || HTTPS_PORT)
  if (port !== HTTPS_PORT && port < LOWEST_UNPRIVILEGED_PORT) {
    return `endpoint must use port 443 or a port from ${LOWEST_UNPRIVILEGED_PORT} up, not ${port}`
  }
  const host = literalHost(url)
  if (isIP(host) ? !policy.allows(host) : isLocalName(host) && !policy.allows('127.0.0.1') && !policy.allows('::1')) {
    return `endpoint must be reachable from the public internet, ${url.hostname} is not`
  }
  return undefined
}

/** The host without an IPv6 literal's brackets. */
export function literalHost(url: URL): string {
  return url.hostname.replace(/^\[|\]$/g, '')
}

/** RFC 6761 6.3: these names never leave the host. */
export function isLocalName(host: string): boolean {
  const name = host.replace(/\.$/, '').toLowerCase()
  return name === 'localhost' || name.endsWith('.localhost')
}
