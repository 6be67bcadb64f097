/**
 * The TLS session that the next connection to an endpoint takes up. A certificate is verified in full handshakes alone, and each
 * connection that takes a session up brings a new one: without an end a busy endpoint's certificate is never looked at again.
 */
import type { TLSSocket } from 'node:tls'
import { monotonicMs, processClock } from '../src/clock.ts'

/** How long after its last full handshake an endpoint is taken for the one that it proved to be. */
const FULL_HANDSHAKE_EVERY_MS = 600_000

/** What sessions go by. Certificates are verified by the process's own clock too. */
export interface SessionClocks {
  monotonicMs(): number
  /** UTC, milliseconds since 1970. */
  utcMs(): number
}

export const SESSION_CLOCKS: SessionClocks = { monotonicMs, utcMs: () => processClock.nowMs() }

/** When an endpoint has proved who it is. */
export interface EndpointProof {
  /** Monotonic: when the certificate was verified. */
  verifiedAtMs: number
  /** UTC: when the certificate expires. */
  validUntilMs: number
}

export interface EndpointSession extends EndpointProof {
  bytes: Buffer
}

/** @returns the session, if a connection may still take it up */
export function usableSession(
  session: EndpointSession | undefined,
  clocks: SessionClocks,
): EndpointSession | undefined {
  if (!session || clocks.monotonicMs() - session.verifiedAtMs >= FULL_HANDSHAKE_EVERY_MS) return undefined
  return clocks.utcMs() < session.validUntilMs ? session : undefined
}

/**
 * What the sessions of a connection rest on: its own handshake, or the one before.
 * @param socket has just been connected: later it can't tell any more
 * @param before the session that it was to take up
 */
export function proofOf(
  socket: TLSSocket,
  before: EndpointProof | undefined,
  clocks: SessionClocks,
): EndpointProof | undefined {
  if (socket.isSessionReused()) return before
  const validUntil = socket.getPeerX509Certificate()?.validToDate
  return validUntil && { verifiedAtMs: clocks.monotonicMs(), validUntilMs: validUntil.getTime() }
}
