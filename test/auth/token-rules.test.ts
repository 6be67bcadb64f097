import { expect, test } from 'vitest'
import { judgePurged, judgeRefresh, type StoredRefreshToken } from '../../src/auth/token-rules.ts'

const NOW = new Date('2026-11-20T10:00:00.000Z')
const before = (ms: number) => new Date(NOW.getTime() - ms)
const stored = (fields: Partial<StoredRefreshToken> = {}): StoredRefreshToken => ({
  clientId: 'client',
  accountId: 'account',
  familyId: 'family',
  expiresAt: new Date(NOW.getTime() + 1),
  rotatedAt: null,
  familyRevokedAt: null,
  ...fields,
})

test('an unused token of its own client is rotated until the moment it expires', () => {
  expect(judgeRefresh(stored(), 'client', NOW)).toBe('rotate')
  expect(judgeRefresh(stored({ expiresAt: NOW }), 'client', NOW)).toBe('refuse')
})

test('another client’s token and one of a revoked family are refused and harm nothing', () => {
  expect(judgeRefresh(stored(), 'other', NOW)).toBe('refuse')
  expect(judgeRefresh(stored({ familyRevokedAt: before(1) }), 'client', NOW)).toBe('refuse')
})

test('a used token is a race up to 10 s after its rotation, and revokes the family from then on', () => {
  expect(judgeRefresh(stored({ rotatedAt: before(0) }), 'client', NOW)).toBe('refuse')
  expect(judgeRefresh(stored({ rotatedAt: before(10_000) }), 'client', NOW)).toBe('refuse')
  expect(judgeRefresh(stored({ rotatedAt: before(10_001) }), 'client', NOW)).toBe('revoke')
})

test('a rotation in the future is one before the clock was set back, but for a second between two processes', () => {
  expect(judgeRefresh(stored({ rotatedAt: before(-1000) }), 'client', NOW)).toBe('refuse')
  expect(judgeRefresh(stored({ rotatedAt: before(-1001) }), 'client', NOW)).toBe('revoke')
  expect(judgeRefresh(stored({ rotatedAt: before(-3_600_000) }), 'client', NOW)).toBe('revoke')
})

test('another client can’t revoke a family with a used token', () => {
  expect(judgeRefresh(stored({ rotatedAt: before(60_000) }), 'other', NOW)).toBe('refuse')
})

test('a used token revokes the family also after it has expired', () => {
  const reused = stored({ rotatedAt: before(60_000), expiresAt: before(1) })
  expect(judgeRefresh(reused, 'client', NOW)).toBe('revoke')
})

test('a token whose row is purged revokes its family as a used one does: for its own client, once', () => {
  expect(judgePurged(stored(), 'client')).toBe('revoke')
  expect(judgePurged(stored(), 'other')).toBe('refuse')
  expect(judgePurged(stored({ familyRevokedAt: before(1) }), 'client')).toBe('refuse')
})
