/**
 * Connects to an integrator's endpoint, and to nothing else: the vetted address is the one connected to, the name stays in
 * SNI and Host, the certificate is always verified.
 */
import { Resolver } from 'node:dns/promises'
import { readFileSync } from 'node:fs'
import { isIP, type LookupFunction, type Socket } from 'node:net'
import { createSecureContext, rootCertificates } from 'node:tls'
import { buildConnector } from 'undici'
import { isLocalName, type AddressPolicy } from '../src/webhooks/endpoint-address.ts'

/** What a refused address is told apart by. */
export const ADDRESS_REFUSED = 'LIS_ADDRESS_REFUSED'

/** Begins the code of every fault of the name look-up. */
export const DNS_FAULT_PREFIX = 'DNS_'

/** RFC 6761 6.3: `localhost` is never asked of a name server, so that nobody else can answer for it. */
const LOOPBACK = ['127.0.0.1', '::1']

const DNS_TIMEOUT_MS = 3000
const DNS_TRIES = 2
/** What a connection that took too long is told apart by; undici's own word for it. */
const CONNECT_TIMEOUT = 'UND_ERR_CONNECT_TIMEOUT'

export interface ConnectorOptions {
  policy: AddressPolicy
  /** PEM files with trust anchors besides the public ones. */
  caFiles: string[]
  /** `address:port` of name servers; undefined: the system's. */
  dnsServers?: string[]
}

/**
 * @param timeoutMs from the name look-up to the end of the TLS handshake; a bit more than an attempt has, whose own deadline
 *   comes first: this one makes sure that the socket goes too
 * @throws when a CA file can't be read or is no certificate
 */
export function createEndpointConnector(options: ConnectorOptions, timeoutMs: number): buildConnector.connector {
  const ca = [...rootCertificates, ...options.caFiles.map((file) => readFileSync(file, 'utf8'))]
  // Built once: parsing the trust anchors for every connection would cost more than the handshake.
  const secureContext = createSecureContext({ ca, minVersion: 'TLSv1.2' })
  const connect = buildConnector({
    secureContext,
    minVersion: 'TLSv1.2',
    rejectUnauthorized: true,
    allowH2: false,
    // Its clock ticks once a second.
    timeout: 0,
    autoSelectFamily: true,
    lookup: vettedLookup(options),
  } as buildConnector.BuildOptions) as (...args: Parameters<buildConnector.connector>) => Socket
  return (target, callback) => {
    // A literal address never reaches `lookup`.
    if (isIP(target.hostname) && !options.policy.allows(target.hostname)) return callback(refused(), null)
    const timer = setTimeout(() => socket.destroy(tooSlow()), timeoutMs)
    const socket = connect(target, (...result) => {
      clearTimeout(timer)
      callback(...result)
    })
  }
}

/**
 * Resolves with c-ares, which has timeouts of its own: the system's resolver blocks every look-up of the process behind a
 * dead server. Every address of the answer must be allowed: one private address among public ones refuses them all.
 */
function vettedLookup({ policy, dnsServers }: ConnectorOptions): LookupFunction {
  const resolver = new Resolver({ timeout: DNS_TIMEOUT_MS, tries: DNS_TRIES })
  if (dnsServers) resolver.setServers(dnsServers)
  return (hostname, lookupOptions, callback) => {
    const local = isLocalName(hostname)
    const resolved = local ? Promise.resolve(LOOPBACK.filter(policy.allows)) : resolveAll(resolver, hostname)
    resolved.then(
      (addresses) => {
        if (addresses.length === 0 || !addresses.every(policy.allows)) return callback(refused(), [])
        const answers = addresses.map((address) => ({ address, family: isIP(address) }))
        if (lookupOptions.all) callback(null, answers)
        else callback(null, answers[0]!.address, answers[0]!.family)
      },
      (error: NodeJS.ErrnoException) => callback(unresolved(error), []),
    )
  }
}

async function resolveAll(resolver: Resolver, hostname: string): Promise<string[]> {
  const [v4, v6] = await Promise.allSettled([resolver.resolve4(hostname), resolver.resolve6(hostname)])
  const addresses = [...(v4.status === 'fulfilled' ? v4.value : []), ...(v6.status === 'fulfilled' ? v6.value : [])]
  if (addresses.length > 0) return addresses
  throw (v4 as PromiseRejectedResult).reason
}

/** Told apart from the endpoint's own faults: c-ares uses the same codes for its servers (ECONNREFUSED). */
function unresolved(error: NodeJS.ErrnoException): Error {
  return Object.assign(new Error('the name could not be resolved'), {
    code: DNS_FAULT_PREFIX + (error.code ?? 'UNKNOWN'),
  })
}

function tooSlow(): Error {
  return Object.assign(new Error('no connection in time'), { code: CONNECT_TIMEOUT })
}

function refused(): Error {
  return Object.assign(new Error('the address may not be called'), { code: ADDRESS_REFUSED })
}
