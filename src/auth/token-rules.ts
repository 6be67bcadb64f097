/**
 * What a refresh token that was presented means (decisions 1), and what a signed token may look like. Pure.
 */
/** A refresh token lives this long unless it is used. */
export const REFRESH_TOKEN_TTL_MS = 30 * 24 * 3600 * 1000

/**
 * Two calls with one token within this time are a race of the integrator's own; later, someone holds a token that was
 * already used.
 */
const ROTATION_RACE_MS = 10_000
/** How far ahead the clock of another process may be. A rotation later than that is one before the clock was set back. */
const CLOCK_TOLERANCE_MS = 1000

export interface TokenFamily {
  clientId: string
  accountId: string
  familyId: string
  familyRevokedAt: Date | null
}

export interface StoredRefreshToken extends TokenFamily {
  expiresAt: Date
  rotatedAt: Date | null
}

/** `rotate`: good. `refuse`: 401 and nothing changes. `revoke`: 401, and the whole family ends. */
export type RefreshVerdict = 'rotate' | 'refuse' | 'revoke'

export function judgeRefresh(stored: StoredRefreshToken, clientId: string, now: Date): RefreshVerdict {
  if (stored.clientId !== clientId || stored.familyRevokedAt) return 'refuse'
  if (stored.rotatedAt) return isRace(now.getTime() - stored.rotatedAt.getTime()) ? 'refuse' : 'revoke'
  return stored.expiresAt > now ? 'rotate' : 'refuse'
}

/**
 * A token whose row is purged. That is long after it expired, so nothing is a race; and it was used, or else its family has no
 * token left and ends with it.
 */
export function judgePurged(family: TokenFamily, clientId: string): Exclude<RefreshVerdict, 'rotate'> {
  return family.clientId !== clientId || family.familyRevokedAt ? 'refuse' : 'revoke'
}

function isRace(ageMs: number): boolean {
  return ageMs >= -CLOCK_TOLERANCE_MS && ageMs <= ROTATION_RACE_MS
}

/**
 * Whether a signed token has three parts, each the one text in base64url that its bytes have (RFC 7515 2): readers of base64
 * pass over padding, other letters and spare bits, and a token would have many texts.
 */
export function isCanonicalToken(token: string): boolean {
  const parts = token.split('.')
  return parts.length === 3 && parts.every((part) => Buffer.from(part, 'base64url').toString('base64url') === part)
}

/**
 * Whether a verified token's header has nothing besides what was verified of it. A key that a token brings or names means nothing here;
 * jose passes it over.
 */
export function isBareHeader(header: object): boolean {
  return Object.keys(header).every((member) => member === 'alg' || member === 'typ')
}
