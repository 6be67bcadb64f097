/**
 * Connects to an integrator's endpoint, and to nothing else: the vetted address is the one connected to, the name stays in
 * SNI and Host, the certificate is always verified.
 */
import { Resolver } from 'node:dns/promises'
import { readFileSync } from 'node:fs'
import { isIP, type LookupFunction } from 'node:net'
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
/** The attempt's own deadline ends it earlier; this only makes sure that no socket outlives it for long. */
const CONNECT_TIMEOUT_MS = 10_500

export interface ConnectorOptions {
  policy: AddressPolicy
  /** PEM files with trust anchors besides the public ones. */
  caFiles: string[]
  /** `address:port` of name servers; undefined: the system's. */
  dnsServers?: string[]
}

/** @throws when a CA file can't be read or is no certificate */
export function createEndpointConnector(options: ConnectorOptions): buildConnector.connector {
  const ca = [...rootCertificates, ...options.caFiles.map((file) => readFileSync(file, 'utf8'))]
  // Built once: parsing the trust anchors for every connection would cost more than the handshake.
  const secureContext = createSecureContext({ ca, minVersion: 'TLSv1.2' })
  const connect = buildConnector({
    secureContext,
    minVersion: 'TLSv1.2',
    rejectUnauthorized: true,
    allowH2: false,
    timeout: CONNECT_TIMEOUT_MS,
    autoSelectFamily: true,
    lookup: vettedLookup(options),
  } as buildConnector.BuildOptions)
  return (target, callback) => {
    // A literal address never reaches `lookup`.
    if (isIP(target.hostname) && !options.policy.allows(target.hostname)) callback(refused(), null)
    else connect(target, callback)
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

function refused(): Error {
  return Object.assign(new Error('the address may not be called'), { code: ADDRESS_REFUSED })
}
