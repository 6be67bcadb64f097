import { expect, test } from 'vitest'
import { familyNamedBy, newRefreshToken } from '../../src/auth/refresh-token.ts'
import { deriveKeys } from '../../src/crypto.ts'
import { newId } from '../../src/ids.ts'

const keys = deriveKeys(Buffer.alloc(32, 1))
const FAMILY_ID = newId(Date.parse('2026-11-20T10:00:00Z'))
const token = newRefreshToken(keys, FAMILY_ID)

test('a refresh token is 120 letters of base64url, no two alike, and names its family', () => {
  expect(token).toMatch(/^[A-Za-z0-9_-]{120}$/)
  expect(newRefreshToken(keys, FAMILY_ID).slice(0, 42)).not.toBe(token.slice(0, 42))
  expect(familyNamedBy(keys, token)).toBe(FAMILY_ID)
})

test('with any letter changed it names none', () => {
  for (let at = 0; at < token.length; at++) {
    const other = token[at] === 'A' ? 'B' : 'A'
    expect(familyNamedBy(keys, token.slice(0, at) + other + token.slice(at + 1))).toBeUndefined()
  }
})

test('of another SECRETS_KEY it names none', () => {
  expect(familyNamedBy(deriveKeys(Buffer.alloc(32, 2)), token)).toBeUndefined()
})

test('in another writing of the same bytes it names none', () => {
  const bytes = Buffer.from(token, 'base64url')
  for (const text of [
    `${token}=`,
    `${token}\n`,
    ` ${token}`,
    `${token}A`,
    bytes.toString('hex'),
    bytes.toString('latin1'),
  ])
    expect(familyNamedBy(keys, text)).toBeUndefined()
  // Whether a token has a letter that base64 writes in another way is by chance: of these some have.
  const others = Array.from({ length: 20 }, () => newRefreshToken(keys, FAMILY_ID))
    .map((one) => one.replaceAll('-', '+').replaceAll('_', '/'))
    .filter((text) => /[+/]/.test(text))
  expect(others.length).toBeGreaterThan(0)
  for (const text of others) expect(familyNamedBy(keys, text)).toBeUndefined()
})

test('what was a refresh token before, and what is none, names none', () => {
  for (const text of ['', 'x', 'A'.repeat(43), 'A'.repeat(120), 'é'.repeat(120), 'A'.repeat(4096)])
    expect(familyNamedBy(keys, text)).toBeUndefined()
})
