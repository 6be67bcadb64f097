import { expect, test } from 'vitest'
import {
  AFTER_ALL_IDS,
  beforeEvent,
  cursorOf,
  eventIdOf,
  logPageOf,
  missedPageOf,
  newestFirst,
} from '../../src/deliveries/delivery-log-rules.ts'
import { DomainError } from '../../src/errors.ts'
import { firstIdOf, newId, publicEventId } from '../../src/ids.ts'
import { encodeCursor } from '../../src/paging.ts'

const FROM = '2026-11-20T10:00:00Z'
const TO = '2026-11-20T12:00:00Z'
const idAt = (text: string) => newId(Date.parse(text))

test('a first page begins behind all that there is, or at the end of the time that is asked for', () => {
  expect(logPageOf({})).toMatchObject({ after: beforeEvent(AFTER_ALL_IDS), fromId: '' })
  expect(logPageOf({ from: FROM, to: TO })).toMatchObject({
    after: beforeEvent(firstIdOf(Date.parse(TO))),
    fromId: firstIdOf(Date.parse(FROM)),
  })
})

test('a cursor goes on where the page ended, and never leaves the time that is asked for', () => {
  const place = { eventId: idAt('2026-11-20T11:00:00Z'), webhookId: newId(5) }
  expect(logPageOf({ cursor: cursorOf(place), to: TO }).after).toEqual(place)
  const tooNew = { eventId: idAt('2026-11-20T13:00:00Z'), webhookId: newId(5) }
  expect(logPageOf({ cursor: cursorOf(tooNew), to: TO }).after).toEqual(beforeEvent(firstIdOf(Date.parse(TO))))
})

test('half-open: the first millisecond belongs to it, the last one does not', () => {
  const { after, fromId } = logPageOf({ from: FROM, to: TO })
  const first = { eventId: firstIdOf(Date.parse(FROM)), webhookId: newId(5) }
  const behind = { eventId: firstIdOf(Date.parse(TO)), webhookId: newId(5) }
  expect(first.eventId >= fromId).toBe(true)
  expect(newestFirst(after, first)).toBe(-1)
  expect(newestFirst(behind, after)).toBe(-1)
})

test('newest event first, within one the newest webhook, and the place before an event lies behind all its webhooks', () => {
  const events = ['2026-11-20T10:00:00Z', '2026-11-20T11:00:00Z'].map(idAt)
  const rows = events.flatMap((eventId) => [{ eventId, webhookId: newId(1) }, { eventId, webhookId: newId(2) }]) // prettier-ignore
  const sorted = [rows[3], rows[2], rows[1], rows[0]]
  expect(rows.toSorted(newestFirst)).toEqual(sorted)
  expect([beforeEvent(events[1]!), ...rows].toSorted(newestFirst).indexOf(beforeEvent(events[1]!))).toBe(-1)
  for (const row of rows.slice(2)) expect(newestFirst(row, beforeEvent(events[1]!))).toBe(-1)
  expect(newestFirst(beforeEvent(events[1]!), rows[1]!)).toBe(-1)
})

test('a cursor that is none of this list and a day that does not exist are refused, with the field', () => {
  for (const cursor of ['x', encodeCursor([newId(1)]), encodeCursor([newId(1), "' OR 1=1"])]) {
    expect(() => logPageOf({ cursor })).toThrow(DomainError)
  }
  for (const field of ['from', 'to']) {
    expect(() => logPageOf({ [field]: '2026-02-30T10:00:00Z!' })).toThrow(`${field} is no time`)
  }
  expect(logPageOf({ from: '1969-01-01T00:00:00Z' }).fromId).toBe(firstIdOf(0))
})

test('what was missed is paged by event alone, and never leaves the time that is asked for', () => {
  expect(missedPageOf({}).beforeId).toBe(AFTER_ALL_IDS)
  const shown = idAt('2026-11-20T11:00:00Z')
  expect(missedPageOf({ cursor: encodeCursor([shown]), to: TO, type: 'lead.created' })).toMatchObject({
    beforeId: shown,
    type: 'lead.created',
  })
  expect(missedPageOf({ cursor: encodeCursor([idAt('2026-11-20T13:00:00Z')]), to: TO }).beforeId).toBe(
    firstIdOf(Date.parse(TO)),
  )
})

test('only a text that is exactly an event’s public id names one', () => {
  const id = newId(7)
  expect(eventIdOf(publicEventId(id))).toBe(id)
  for (const text of [id, `evt_${id} `, `EVT_${id}`, `evt_${id.toUpperCase()}`, 'evt_', '']) {
    expect(eventIdOf(text)).toBeUndefined()
  }
})
