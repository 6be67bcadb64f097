/**
 * Sorts what went wrong with a request into classes, by code and never by text.
 */
import { FLOODED } from './endpoint-connection.ts'
import { ADDRESS_REFUSED, DNS_FAULT_PREFIX } from './endpoint-connector.ts'

export type AttemptClass =
  'ok' | 'http_status' | 'timeout' | 'dns' | 'refused' | 'reset' | 'tls' | 'address_refused' | 'protocol' | 'unknown'

/** Of a host with several addresses, none of which could be reached. */
const CONNECT_TIMEOUT = 'UND_ERR_CONNECT_TIMEOUT'

/** Node's code for the faults of a certificate that it has none for. */
const UNSPECIFIED = 'UNSPECIFIED'
/** OpenSSL's names of those, by its own sentences, which hold nothing of the certificate. */
const OPENSSL_CODES: Record<string, string> = {
  'EE certificate key too weak': 'EE_KEY_TOO_SMALL',
  'CA certificate key too weak': 'CA_KEY_TOO_SMALL',
  'CA signature digest algorithm too weak': 'CA_MD_TOO_WEAK',
}

const CLASS_OF_CODE: Record<string, AttemptClass> = {
  [ADDRESS_REFUSED]: 'address_refused',
  ECONNREFUSED: 'refused',
  EHOSTUNREACH: 'refused',
  EHOSTDOWN: 'refused',
  ENETUNREACH: 'refused',
  EADDRNOTAVAIL: 'refused',
  ECONNRESET: 'reset',
  ECONNABORTED: 'reset',
  EPIPE: 'reset',
  UND_ERR_SOCKET: 'reset',
  ETIMEDOUT: 'timeout',
  [CONNECT_TIMEOUT]: 'timeout',
  EPROTO: 'tls',
  [FLOODED]: 'tls',
  HPE_INVALID: 'protocol',
  UND_ERR_HEADERS_OVERFLOW: 'protocol',
  UND_ERR_INVALID_ARG: 'protocol',
  CERT_HAS_EXPIRED: 'tls',
  CERT_NOT_YET_VALID: 'tls',
  CERT_REVOKED: 'tls',
  CERT_UNTRUSTED: 'tls',
  CERT_REJECTED: 'tls',
  CERT_SIGNATURE_FAILURE: 'tls',
  CERT_CHAIN_TOO_LONG: 'tls',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'tls',
  SELF_SIGNED_CERT_IN_CHAIN: 'tls',
  INVALID_CA: 'tls',
  INVALID_PURPOSE: 'tls',
  HOSTNAME_MISMATCH: 'tls',
  UNABLE_TO_GET_ISSUER_CERT: 'tls',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: 'tls',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'tls',
  UNABLE_TO_DECRYPT_CERT_SIGNATURE: 'tls',
  UNABLE_TO_DECODE_ISSUER_PUBLIC_KEY: 'tls',
  [UNSPECIFIED]: 'tls',
  EE_KEY_TOO_SMALL: 'tls',
  CA_KEY_TOO_SMALL: 'tls',
  CA_MD_TOO_WEAK: 'tls',
}

const TEXT: Record<AttemptClass, string> = {
  ok: '',
  http_status: 'HTTP status',
  timeout: 'no connection within 10 s',
  dns: 'the host name could not be resolved',
  refused: 'the connection was refused',
  reset: 'the connection was closed before an answer',
  tls: 'the TLS handshake or the certificate failed',
  address_refused: 'the host name leads to an address that may not be called',
  protocol: 'the answer was not valid HTTP/1.1',
  unknown: 'the request failed',
}

export const ATTEMPT_CLASSES = Object.keys(TEXT) as AttemptClass[]

/** @returns a class, and a sentence with the code; never text from the remote side */
export function attemptFault(error: Error): { class: AttemptClass; error: string } {
  const code = codeOf(error)
  const faultClass = classOf(code)
  return { class: faultClass, error: code ? `${TEXT[faultClass]} (${code})`.slice(0, 200) : TEXT[faultClass] }
}

function classOf(code: string): AttemptClass {
  const known = CLASS_OF_CODE[code]
  if (known) return known
  if (code.startsWith(DNS_FAULT_PREFIX)) return 'dns'
  if (code.startsWith('ERR_SSL_') || code.startsWith('ERR_TLS_')) return 'tls'
  return 'unknown'
}

/** With several addresses tried, Node reports an AggregateError: one that did not answer in time decides, or else the first. */
function codeOf(error: Error): string {
  const { code, errors } = error as { code?: unknown; errors?: { code?: unknown }[] }
  if (errors?.some((cause) => cause.code === 'ETIMEDOUT')) return CONNECT_TIMEOUT
  if (code === UNSPECIFIED) return OPENSSL_CODES[error.message] ?? code
  const value = errors?.[0]?.code ?? code
  return typeof value === 'string' && /^[A-Z0-9_]{1,60}$/.test(value) ? value : ''
}
