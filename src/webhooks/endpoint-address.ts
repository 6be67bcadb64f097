/**
 * Which addresses may be called (decisions 5). Pure: used on literals at registration and on every resolved address at
 * each connection. The check is made on the parsed form, never on text: `127.1`, `0x7f000001` and `[::ffff:127.0.0.1]` are
 * all parsed before they get here.
 */
import { BlockList, isIP } from 'node:net'
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

/** @param allowCidrs ranges that are open besides public addresses, e.g. `10.0.0.0/8`; for private installations */
export function createAddressPolicy(allowCidrs: string[]): AddressPolicy {
  const opened4 = new BlockList()
  const opened6 = new BlockList()
  for (const cidr of allowCidrs) {
    const [address, prefix] = cidr.split('/') as [string, string]
    if (isIP(address) === 4) opened4.addSubnet(address, Number(prefix), 'ipv4')
    else opened6.addSubnet(address, Number(prefix), 'ipv6')
  }
  return {
    allows(address) {
      switch (isIP(address)) {
        case 4:
          return opened4.check(address, 'ipv4') || !refused4.check(address, 'ipv4')
        case 6:
          // A mapped address (::ffff:10.0.0.1) is outside 2000::/3 and so refused; BlockList would match it against the
          // IPv4 rules when asked as IPv6, so mapped forms never reach the opened ranges.
          if (isMapped(address)) return false
          return (
            opened6.check(address, 'ipv6') || (globalUnicast.check(address, 'ipv6') && !refused6.check(address, 'ipv6'))
          )
        default:
          return false
      }
    },
  }
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
