import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { dayRange, isTimeZone, localDay, parseDateTime } from '../../src/crm/zoned-time.ts'

const read = (text: string, timeZone: string) => parseDateTime(text, timeZone)?.toISOString()

describe('a time', () => {
  test.each([
    ['2026-11-20T10:15:00+05:30', '2026-11-20T04:45:00.000Z'],
    ['2026-11-20T10:15:00Z', '2026-11-20T10:15:00.000Z'],
    ['2026-11-20T10:15:00.1239Z', '2026-11-20T10:15:00.123Z'],
    ['2026-11-20T10:15-0930', '2026-11-20T19:45:00.000Z'],
    ['2026-11-20T10:15+05', '2026-11-20T05:15:00.000Z'],
  ])('with an offset is that instant, whatever the zone: %s', (text, instant) => {
    expect(read(text, 'Asia/Kolkata')).toBe(instant)
    expect(read(text, 'America/New_York')).toBe(instant)
  })

  test.each([
    ['Asia/Kolkata', '2026-11-20T10:15:00', '2026-11-20T04:45:00.000Z'],
    ['Europe/Berlin', '2026-07-01T00:00', '2026-06-30T22:00:00.000Z'],
    ['Pacific/Kiritimati', '2026-01-01T13:00', '2025-12-31T23:00:00.000Z'],
  ])('without an offset is the wall clock of %s: %s', (zone, text, instant) => {
    expect(read(text, zone)).toBe(instant)
  })

  test.each([
    ['Europe/Berlin', '2026-03-29T02:30', '2026-03-29T01:30:00.000Z'],
    ['America/New_York', '2026-03-08T02:30', '2026-03-08T07:30:00.000Z'],
    ['Pacific/Apia', '2011-12-30T10:00', '2011-12-30T20:00:00.000Z'],
  ])('that the clocks of %s never show (%s) is as much later as they were set forward', (zone, text, instant) => {
    expect(read(text, zone)).toBe(instant)
  })

  test.each([
    ['Europe/Berlin', '2026-10-25T02:30', '2026-10-25T00:30:00.000Z'],
    ['America/New_York', '2026-11-01T01:30', '2026-11-01T05:30:00.000Z'],
  ])('that the clocks of %s show twice (%s) is the first of the two', (zone, text, instant) => {
    expect(read(text, zone)).toBe(instant)
  })

  test.each([
    '2026-02-30T10:00:00Z', '2025-02-29T10:00:00', '2026-13-01T10:00:00', '2026-00-10T10:00:00', '2026-11-31T10:00',
    '2026-11-20T24:00:00', '2026-11-20T10:60:00', '2026-11-20T10:00:60Z', '2026-11-20T10:00:00+24:00', '2026-11-20',
    '2026-11-20 10:00:00', '20261120T100000Z', '0000-01-01T00:00:00Z', '0999-12-31T23:59:59Z', '+12026-01-01T00:00:00Z',
    '9999-12-31T23:59:59-01:00', 'tomorrow', '', '1795149730',
  ])('that does not exist or can not be read is none: "%s"', (text) => {
    expect(parseDateTime(text, 'Asia/Kolkata')).toBeUndefined()
  }) // prettier-ignore
})

describe('a day', () => {
  test.each([
    ['Asia/Kolkata', '2026-11-20T18:29:59.999Z', '2026-11-20'],
    ['Asia/Kolkata', '2026-11-20T18:30:00.000Z', '2026-11-21'],
    ['America/New_York', '2026-03-08T04:59:59.999Z', '2026-03-07'],
    ['America/New_York', '2026-03-09T03:59:59.999Z', '2026-03-08'],
    ['America/New_York', '2026-03-09T04:00:00.000Z', '2026-03-09'],
    ['Pacific/Kiritimati', '2026-12-31T10:00:00.000Z', '2027-01-01'],
  ])('in %s at %s is %s', (zone, instant, day) => {
    expect(localDay(Date.parse(instant), zone)).toBe(day)
  })
})

test('the last day of all is one, and ends with all times', () => {
  const day = (zone: string) => dayRange('9999-12-31', zone)
  expect(day('UTC')).toEqual({ from: new Date('9999-12-31T00:00:00Z'), to: undefined })
  expect(day('America/New_York')).toEqual({ from: new Date('9999-12-31T05:00:00Z'), to: undefined })
  // With the hours in which it is the next one there, which has no name.
  expect(day('Asia/Kolkata')).toEqual({ from: new Date('9999-12-30T18:30:00Z'), to: undefined })
  expect(dayRange('9999-12-32', 'UTC')).toBeUndefined()
})

test('the first day of all is one, and begins where times begin', () => {
  const first = new Date('1000-01-01T00:00:00Z')
  expect(dayRange('1000-01-01', 'UTC')).toEqual({ from: first, to: new Date('1000-01-02T00:00:00Z') })
  expect(dayRange('1000-01-01', 'Asia/Kolkata')?.from).toEqual(first)
  expect(dayRange('0999-12-31', 'America/New_York')?.from).toEqual(first)
  for (const zone of ['UTC', 'Asia/Kolkata']) expect(dayRange('0999-12-31', zone)).toBeUndefined()
})

test('a time zone is one that the platform knows', () => {
  expect([isTimeZone('Asia/Kolkata'), isTimeZone('UTC'), isTimeZone('Asia/Poona'), isTimeZone('x')]).toEqual([
    true,
    true,
    false,
    false,
  ])
})

describe.each(['client', 'operator'])('the pattern of scheduledAt in the %s contract', (contract) => {
  const text = readFileSync(new URL(`../../openapi/${contract}.yaml`, import.meta.url), 'utf8')
  const patterns = [...text.matchAll(/format: iso-date-time\n.*\n +pattern: (.+)/g)].map(
    (match) => new RegExp(match[1]!, 'u'),
  )

  const some = '10:15:59 23:59 00:00:00.123456789Z 10:15+2359 10:15-05 19:00+05:30'
  const none = '24:00 25:00 10:60 10:15:60 10:15:60Z 10:15:99.5 10:15+24:00 10:15+05:60 10:15-2960'
  test.each([...some.split(' '), ...none.split(' ')])('is as exact as what is taken: %s', (time) => {
    const isTaken = read(`2026-11-20T${time}`, 'UTC') !== undefined
    expect(patterns.map((pattern) => pattern.test(`2026-11-20T${time}`))).toEqual(patterns.map(() => isTaken))
    expect(patterns.length).toBeGreaterThan(0)
  })
})
