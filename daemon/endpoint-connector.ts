/**
 * Connects to an integrator's endpoint, and to nothing else: the vetted address is the one connected to, the name stays in
 * SNI and Host, the certificate is verified: anew at least every ten minutes, however many connections take up a session.
 */
import { constants } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { isIP, type LookupFunction, type OnReadOpts } from 'node:net'
import {
  connect,
  createSecureContext,
  DEFAULT_CIPHERS,
  rootCertificates,
  type ConnectionOptions,
  type TLSSocket,
} from 'node:tls'
import { ownCopy } from '../src/own-bytes.ts'
import { isLocalName, type AddressPolicy } from '../src/webhooks/endpoint-address.ts'
import {
  proofOf,
  SESSION_CLOCKS,
  usableSession,
  type EndpointProof,
  type EndpointSession,
  type SessionClocks,
} from './endpoint-session.ts'
import { createNameLookup } from './name-lookup.ts'

/** What a refused address is told apart by. */
export const ADDRESS_REFUSED = 'LIS_ADDRESS_REFUSED'

/** Begins the code of every fault of the name look-up. */
export const DNS_FAULT_PREFIX = 'DNS_'

/** RFC 6761 6.3: `localhost` is never asked of a name server, so that nobody else can answer for it. */
const LOOPBACK = ['127.0.0.1', '::1']

/** Node copies it for each connection: names, or a Buffer, into one of the pieces of `own-bytes.ts`, anything else into its own memory. */
const HTTP_1_1 = new DataView(Uint8Array.from([8, ...Buffer.from('http/1.1')]).buffer)

/** TLS 1.2 lets a server ask for another handshake at any time, as often as it likes: each costs this side more than it. */
const NO_RENEGOTIATION = constants.SSL_OP_NO_RENEGOTIATION

/** Without those for which a server of TLS 1.2 chooses the numbers: with large ones a handshake keeps this process for a second. */
const CIPHERS = `${DEFAULT_CIPHERS}:!DHE`

/** Of each family. A name may have thousands: all are vetted, and where none can be reached each costs a try, one inside the other. */
const MOST_ADDRESSES = 100

const TCP_KEEP_ALIVE_MS = 60_000
/**
 * How long an address has to accept the connection before the next one is tried. Node gives the earlier one up then, and its
 * default of 250 ms is less than a far host's round trip, and than the second in which a lost packet is sent again: where the
 * other address can't be reached at all, the host would be taken for one that does not answer.
 */
const ADDRESS_TIMEOUT_MS = 2500

export interface ConnectorOptions {
  policy: AddressPolicy
  /** PEM files with trust anchors besides the public ones. */
  caFiles: string[]
  /** `address:port` of name servers; undefined: the system's. */
  dnsServers?: string[]
  /** What ends a TLS session; undefined: this process's. */
  sessionClocks?: SessionClocks
}

/** Whom a connection leads to, and what was agreed with it before. */
export interface EndpointOrigin {
  /** An IPv6 literal without its brackets. */
  readonly host: string
  readonly port: number
  /** Of its last TLS connection: spares the next one most of the handshake. */
  session: EndpointSession | undefined
}

/** @throws when the host is a literal address that may not be called; what is learned later comes as the socket's error */
export type ConnectEndpoint = (origin: EndpointOrigin, onread: OnReadOpts) => TLSSocket

/**
 * Connections have no deadline of their own: each is made for an attempt, whose deadline began before the name look-up and
 * takes the socket with it.
 * @throws when a CA file can't be read or is no certificate
 */
export function createEndpointConnector(options: ConnectorOptions): ConnectEndpoint {
  const ca = [...rootCertificates, ...options.caFiles.map((file) => readFileSync(file, 'utf8'))]
  const shared = {
    // Built once: parsing the trust anchors for every connection would cost more than the handshake.
    secureContext: createSecureContext({
      ca,
      minVersion: 'TLSv1.2',
      ciphers: CIPHERS,
      secureOptions: NO_RENEGOTIATION,
    }),
    minVersion: 'TLSv1.2' as const,
    rejectUnauthorized: true,
    // Else the first connection decides the protocol, and all others wait for it: on behalf of attempts long over, too.
    ALPNProtocols: HTTP_1_1,
    autoSelectFamily: true,
    autoSelectFamilyAttemptTimeout: ADDRESS_TIMEOUT_MS,
    lookup: vettedLookup(options),
  }
  const clocks = options.sessionClocks ?? SESSION_CLOCKS
  return (origin, onread) => {
    const { host, port } = origin
    const before = usableSession(origin.session, clocks)
    const literal = isIP(host) !== 0
    // A literal address never reaches `lookup`.
    if (literal && !options.policy.allows(host)) throw refused()
    // Without the dot that ends a name in DNS (RFC 6066 3): some servers refuse it.
    const name = literal ? {} : { servername: host.replace(/\.$/, '') }
    const session = before?.bytes
    const target: ConnectionOptions & { onread: OnReadOpts } = { ...shared, ...name, host, port, session, onread }
    const socket = connect(target)
    socket.setNoDelay(true)
    socket.setKeepAlive(true, TCP_KEEP_ALIVE_MS)
    let proof: EndpointProof | undefined
    socket.once('secureConnect', () => (proof = proofOf(socket, before, clocks)))
    // Not before: with each further address that is tried Node begins anew, and forgets who wants to hear of sessions.
    socket.once('connect', () => {
      socket.on('session', (bytes: Buffer) => (origin.session = proof && { ...proof, bytes: ownCopy(bytes) }))
    })
    // A server that stumbles over its own session is asked without one next time.
    socket.on('error', () => (origin.session = undefined))
    return socket
  }
}

/** Every address of the answer must be allowed: one private address among public ones refuses them all. */
function vettedLookup({ policy, dnsServers }: ConnectorOptions): LookupFunction {
  const lookUp = createNameLookup(dnsServers)
  return (hostname, lookupOptions, callback) => {
    const local = isLocalName(hostname)
    const resolved = local ? Promise.resolve(LOOPBACK.filter(policy.allows)) : lookUp(hostname)
    resolved.then(
      (addresses) => {
        if (addresses.length === 0 || !addresses.every(policy.allows)) return callback(refused(), [])
        const all = addresses.map((address) => ({ address, family: isIP(address) }))
        const answers = [4, 6].flatMap((wanted) =>
          all.filter(({ family }) => family === wanted).slice(0, MOST_ADDRESSES),
        )
        if (lookupOptions.all) callback(null, answers)
        else callback(null, answers[0]!.address, answers[0]!.family)
      },
      (error: NodeJS.ErrnoException) => callback(unresolved(error), []),
    )
  }
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
