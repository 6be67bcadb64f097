import { expect, test } from 'vitest'
import { hintDatagram, readHint, type Hint } from '../../src/events/daemon-hints.ts'
import { newId } from '../../src/ids.ts'

const eventId = newId(1_790_000_000_000)

test('a hint is read as it was sent', () => {
  const hints: Hint[] = [
    { kind: 'events', eventId },
    { kind: 'events' },
    { kind: 'lanes' },
    { kind: 'lanes', webhookIds: [eventId] },
    { kind: 'lanes', webhookIds: Array.from({ length: 40 }, (_, n) => newId(n)) },
    { kind: 'settings' },
    { kind: 'committing', eventId },
  ]
  for (const hint of hints) expect(readHint(hintDatagram(hint))).toEqual(hint)
  expect(hintDatagram({ kind: 'settings' })).toEqual(Buffer.of(2))
  expect(hintDatagram({ kind: 'events', eventId })).toEqual(Buffer.concat([Buffer.of(0), Buffer.from(eventId)]))
})

test('what is foretold names nothing to who does not know of that: it is not to be sent before it is on disk', () => {
  const datagram = hintDatagram({ kind: 'committing', eventId })
  expect(readHint(Buffer.concat([Buffer.of(0), datagram.subarray(1)]))).toEqual({ kind: 'events' })
  for (const text of ['', '.', eventId, `${eventId}..`, `${eventId.toUpperCase()}.`, `${eventId}${eventId}.`])
    expect(readHint(Buffer.concat([Buffer.of(3), Buffer.from(text)]))).toEqual({ kind: 'events' })
})

test('what is no id counts as none', () => {
  const texts = [
    'x',
    '?',
    eventId.slice(1),
    `${eventId}0`,
    `${eventId}\n`,
    ` ${eventId}`,
    eventId.toUpperCase(),
    `8${eventId.slice(1)}`,
  ]
  texts.push("' OR 1 -- ".padEnd(26, '0'), `${eventId.slice(0, 25)}é`, eventId.repeat(2000), '\0'.repeat(26))
  for (const text of texts)
    expect(readHint(Buffer.concat([Buffer.of(0), Buffer.from(text)]))).toEqual({ kind: 'events' })
})

test('lanes of which one is no id, or that are too many, are not named', () => {
  for (const text of ['x', eventId.slice(1), `${eventId}0`, eventId + eventId.toUpperCase(), eventId.repeat(41)])
    expect(readHint(Buffer.concat([Buffer.of(1), Buffer.from(text)]))).toEqual({ kind: 'lanes' })
})

test('of other kinds nothing is named; an unknown kind, or none, says that events wait', () => {
  expect(readHint(Buffer.concat([Buffer.of(1), Buffer.from(eventId)])).eventId).toBeUndefined()
  expect(readHint(Buffer.concat([Buffer.of(2), Buffer.from(eventId)]))).toEqual({ kind: 'settings' })
  expect(readHint(Buffer.alloc(0))).toEqual({ kind: 'events' })
  for (const byte of [3, 255]) expect(readHint(Buffer.of(byte)).kind).toBe('events')
})
