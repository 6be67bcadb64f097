/**
 * Calendar days and wall-clock times in an account's time zone, by Intl's time zone database. Pure.
 */
const DAY_MS = 24 * 3600 * 1000
/** What a DATETIME column holds. */
const EARLIEST_MS = Date.UTC(1000, 0, 1)
export const LATEST_MS = Date.UTC(9999, 11, 31, 23, 59, 59, 999)

const formatters = new Map<string, Intl.DateTimeFormat>()

/** Making one costs a hundred times what using it does. There are as many as zones in use. */
function formatterOf(timeZone: string): Intl.DateTimeFormat {
  let formatter = formatters.get(timeZone)
  if (!formatter) {
    formatter = new Intl.DateTimeFormat('en-US', {
      timeZone,
      calendar: 'gregory',
      numberingSystem: 'latn',
      hourCycle: 'h23',
      year: 'numeric',
      month: 'numeric',
      day: 'numeric',
      hour: 'numeric',
      minute: 'numeric',
      second: 'numeric',
    })
    formatters.set(timeZone, formatter)
  }
  return formatter
}

export function isTimeZone(timeZone: string): boolean {
  // An offset, which the engine takes as well, is no name, and knows no summer time.
  if (/^[+-]/.test(timeZone)) return false
  try {
    formatterOf(timeZone)
    return true
  } catch {
    return false
  }
}

/** The wall clock of the zone at an instant, as if it were UTC, in milliseconds since 1970. */
function wallClockMs(instantMs: number, timeZone: string): number {
  const parts: Record<string, number> = {}
  for (const { type, value } of formatterOf(timeZone).formatToParts(instantMs)) parts[type] = Number(value)
  const { year, month, day, hour, minute, second } = parts as Record<string, number>
  const milliseconds = ((instantMs % 1000) + 1000) % 1000
  return Date.UTC(year!, month! - 1, day!, hour!, minute!, second!) + milliseconds
}

function offsetMs(instantMs: number, timeZone: string): number {
  return wallClockMs(instantMs, timeZone) - instantMs
}

/** By zone: under load many calls ask for one second's day, and no clock is moved within a second. */
const lastDays = new Map<string, { second: number; day: string }>()

/** The calendar day, `YYYY-MM-DD`, that it is in the zone at an instant. */
export function localDay(instantMs: number, timeZone: string): string {
  const second = Math.floor(instantMs / 1000)
  const last = lastDays.get(timeZone)
  if (last?.second === second) return last.day
  const day = new Date(wallClockMs(instantMs, timeZone)).toISOString().slice(0, 10)
  lastDays.set(timeZone, { second, day })
  return day
}

/**
 * The instant at which the zone's wall clock shows a time. A time that is shown twice (clocks set back) is the first of the two;
 * one that is never shown (clocks set forward) is as much later as the gap is long.
 */
function instantOf(wallMs: number, timeZone: string): number {
  // No zone moves its clock twice within a day, so the offsets a day before and a day after are all that can apply.
  const before = offsetMs(wallMs - DAY_MS, timeZone)
  const after = offsetMs(wallMs + DAY_MS, timeZone)
  const shown = [before, after].map((offset) => wallMs - offset).filter((ms) => wallClockMs(ms, timeZone) === wallMs)
  return shown.length > 0 ? Math.min(...shown) : wallMs - before
}

const DATE_TIME =
  /^(\d{4})-(\d{2})-(\d{2})[Tt](\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?([Zz]|[+-]\d{2}(?::?\d{2})?)?$/

/**
 * Reads an ISO 8601 date-time; without an offset it is the zone's wall clock. Digits past the millisecond are dropped.
 * @returns undefined when it is none, or names a day or an hour that does not exist
 */
export function parseDateTime(text: string, timeZone: string): Date | undefined {
  const instantMs = instantMsOf(text, timeZone)
  if (instantMs === undefined || instantMs < EARLIEST_MS || instantMs > LATEST_MS) return undefined
  return new Date(instantMs)
}

/** The same, also of times that are too early or too late for the database. */
function instantMsOf(text: string, timeZone: string): number | undefined {
  const match = DATE_TIME.exec(text)
  if (!match) return undefined
  const [year, month, day, hour, minute, second] = match.slice(1, 7).map((digits) => Number(digits ?? 0))
  const milliseconds = Number((match[7] ?? '').slice(0, 3).padEnd(3, '0'))
  const wall = new Date(Date.UTC(year!, month! - 1, day!, hour!, minute!, second!, milliseconds))
  // Date.UTC carries over what is too large (30 February, hour 24, second 60) and moves years below 100.
  const shown = `${match[1]}-${match[2]}-${match[3]}T${match[4]}:${match[5]}:${match[6] ?? '00'}`
  if (wall.toISOString().slice(0, 19) !== shown) return undefined
  return match[8] === undefined ? instantOf(wall.getTime(), timeZone) : withOffset(wall.getTime(), match[8])
}

function withOffset(wallMs: number, offset: string): number | undefined {
  if (offset === 'Z' || offset === 'z') return wallMs
  const hours = Number(offset.slice(1, 3))
  const minutes = Number(offset.slice(3).replace(':', '') || 0)
  if (hours > 23 || minutes > 59) return undefined
  return wallMs - (offset[0] === '-' ? -1 : 1) * (hours * 60 + minutes) * 60_000
}

export interface DayRange {
  from: Date
  /** The first instant that is not of it any more; undefined: times end with it. */
  to: Date | undefined
}

/**
 * A calendar day of the zone, of which the first and the last of all are cut where times begin and end.
 * @param day `YYYY-MM-DD`
 * @returns undefined when there is no such day
 */
export function dayRange(day: string, timeZone: string): DayRange | undefined {
  const fromMs = instantMsOf(`${day}T00:00:00`, timeZone)
  if (fromMs === undefined || fromMs > LATEST_MS || !/^\d{4}-\d{2}-\d{2}$/.test(day)) return undefined
  const nextDay = new Date(Date.parse(`${day}T00:00:00Z`) + DAY_MS).toISOString().slice(0, 10)
  const toMs = instantMsOf(`${nextDay}T00:00:00`, timeZone) ?? Infinity
  if (toMs <= EARLIEST_MS) return undefined
  return { from: new Date(Math.max(fromMs, EARLIEST_MS)), to: toMs > LATEST_MS ? undefined : new Date(toMs) }
}
