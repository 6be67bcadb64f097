import { describe, expect, test } from 'vitest'
import {
  afterFailure,
  judgeOtpRequest,
  judgeOtpTry,
  lockMovedBack,
  newCode,
  type OtpCode,
  type OtpContact,
} from '../../src/patients/otp-rules.ts'

const NOW = new Date('2026-11-22T10:00:00Z')
const MINUTE_MS = 60_000
const DAY_MS = 86_400_000
const ahead = (ms: number) => new Date(NOW.getTime() + ms)
const ago = (ms: number) => new Date(NOW.getTime() - ms)
const RIGHT = Buffer.alloc(32, 1)
const WRONG = Buffer.alloc(32, 2)

const contact = (changes: Partial<OtpContact> = {}): OtpContact => ({
  hash: Buffer.alloc(32),
  accountId: 'a',
  contactSealed: Buffer.alloc(1),
  codeId: 'k',
  failuresInRow: 0,
  lockedUntil: null,
  loginEpoch: 0,
  ...changes,
})
const code = (changes: Partial<OtpCode> = {}): OtpCode => ({
  id: 'k',
  codeHash: RIGHT,
  tries: 0,
  sentAt: ago(MINUTE_MS),
  expiresAt: new Date(NOW.getTime() + 4 * MINUTE_MS),
  usedAt: null,
  ...changes,
})
const limited = (seconds: number) =>
  expect.objectContaining({ code: 'otp_limited', extras: { retryAfterSeconds: seconds } })

test('within 30 s of a code that serves there is no other one, afterwards, after its use or its fifth try there is', () => {
  const request = (alive: Partial<OtpCode>) => judgeOtpRequest(contact(), code(alive), [], NOW)
  expect(request({ sentAt: ago(29_999) })).toBe('repeat')
  expect(request({ sentAt: ago(30_000) })).toBe('send')
  expect(request({ sentAt: ago(1000), usedAt: ago(500) })).toBe('send')
  expect(request({ sentAt: ago(1000), tries: 4 })).toBe('repeat')
  expect(request({ sentAt: ago(1000), tries: 5 })).toBe('send')
})

test('the sixth code of ten minutes and the eleventh of a day wait until the first has left its time', () => {
  const request = (sentAt: Date[]) => judgeOtpRequest(contact(), undefined, sentAt, NOW)
  const minutes = (...all: number[]) => all.map((n) => ago(n * MINUTE_MS))
  expect(request(minutes(1, 2, 3, 4))).toBe('send')
  expect(() => request(minutes(1, 2, 3, 4, 9))).toThrow(limited(60))
  expect(request(minutes(1, 2, 3, 4, 10))).toBe('send')
  const spread = Array.from({ length: 10 }, (_, n) => ago((n + 1) * 120 * MINUTE_MS))
  expect(() => request(spread)).toThrow(limited(4 * 3600))
  expect(request(spread.slice(1))).toBe('send')
})

test('the right digits log in while the code is the one alive, unused, in time and tried fewer than five times', () => {
  const judge = (of: Partial<OtpCode>, hash = RIGHT, whose: Partial<OtpContact> = {}) => judgeOtpTry(contact(whose), code(of), hash, NOW) // prettier-ignore
  expect(judge({})).toBe('right')
  expect(judge({}, WRONG)).toBe('wrong')
  expect(judge({ tries: 4 })).toBe('right')
  expect(judge({ tries: 5 })).toBe('dead')
  expect(judge({ usedAt: ago(1) })).toBe('dead')
  expect(judge({ expiresAt: NOW })).toBe('dead')
  expect(judge({}, RIGHT, { codeId: 'another' })).toBe('dead')
})

test('the twentieth wrong try in a row locks the contact for a day, also against the right digits', () => {
  expect(afterFailure(contact({ failuresInRow: 18 }), NOW)).toEqual({ failuresInRow: 19, lockedUntil: null })
  const locked = afterFailure(contact({ failuresInRow: 19 }), NOW)
  expect(locked).toEqual({ failuresInRow: 20, lockedUntil: new Date(NOW.getTime() + DAY_MS) })
  expect(() => judgeOtpTry(contact(locked), code(), RIGHT, NOW)).toThrow(limited(86_400))
  expect(() => judgeOtpRequest(contact(locked), undefined, [], NOW)).toThrow(limited(86_400))
  expect(judgeOtpTry(contact(locked), code({ expiresAt: new Date(NOW.getTime() + 2 * DAY_MS) }), RIGHT, new Date(NOW.getTime() + DAY_MS))).toBe('right') // prettier-ignore
})

describe('after the clock was set back', () => {
  const HOUR_MS = 3_600_000
  const judge = (sentAt: Date) => judgeOtpTry(contact(), code({ sentAt, expiresAt: ahead(DAY_MS) }), RIGHT, NOW)
  const request = (alive: Partial<OtpCode>, sentAt: Date[] = []) => judgeOtpRequest(contact(), code(alive), sentAt, NOW)

  test('a code that was sent in the future serves no more, and another is sent', () => {
    expect(judge(ahead(5001))).toBe('dead')
    expect(request({ sentAt: ahead(5001) })).toBe('send')
    expect(judge(ahead(25 * HOUR_MS))).toBe('dead')
    expect(request({ sentAt: ahead(25 * HOUR_MS) })).toBe('send')
  })

  test('one of another process, whose clock is a little ahead, serves and is repeated', () => {
    expect(judge(ahead(5000))).toBe('right')
    expect(request({ sentAt: ahead(5000) })).toBe('repeat')
  })

  test('codes that were sent in the future count against the limit of a day alone, and no further than a day ahead', () => {
    const sent = (ms: number, count = 5) => Array.from({ length: count }, (_, n) => ahead(ms + n))
    expect(request({ usedAt: NOW }, sent(HOUR_MS))).toBe('send')
    expect(() => request({ usedAt: NOW }, sent(1000))).toThrow(limited(601))
    expect(request({ usedAt: NOW }, sent(HOUR_MS, 9))).toBe('send')
    expect(() => request({ usedAt: NOW }, sent(HOUR_MS, 10))).toThrow(limited(90_000))
    expect(request({ usedAt: NOW }, sent(25 * HOUR_MS, 10))).toBe('send')
  })

  test('a locked contact stays locked and is told to come back after a day at the most', () => {
    const locked = contact({ lockedUntil: ahead(DAY_MS + 25 * HOUR_MS) })
    expect(() => judgeOtpRequest(locked, undefined, [], NOW)).toThrow(limited(86_400))
    expect(() => judgeOtpTry(locked, code(), RIGHT, NOW)).toThrow(limited(86_400))
  })

  test('a lock that ends later than one of now would is moved back', () => {
    const moved = (lockedUntil: Date | null) => lockMovedBack(contact({ lockedUntil }), NOW)
    expect(moved(ahead(DAY_MS + 5001))).toEqual(ahead(DAY_MS))
    for (const stands of [ahead(DAY_MS + 5000), ahead(-1), null]) expect(moved(stands)).toBeUndefined()
  })
})

test('a code has six digits', () => {
  for (let n = 0; n < 200; n++) expect(newCode()).toMatch(/^\d{6}$/)
})
