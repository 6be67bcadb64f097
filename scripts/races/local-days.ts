/** Days of a time zone by way of the platform's own texts, without a line of what the service reckons them with. */

const HOUR_MS = 3_600_000

const formats = new Map<string, Intl.DateTimeFormat>()

function formatOf(timeZone: string, options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
  const key = `${timeZone} ${Object.keys(options)}`
  let format = formats.get(key)
  if (!format) formats.set(key, (format = new Intl.DateTimeFormat('en-CA', { timeZone, ...options })))
  return format
}

/** As `2026-11-28`. */
export function dayIn(timeZone: string, timeMs: number): string {
  return formatOf(timeZone, { year: 'numeric', month: '2-digit', day: '2-digit' }).format(timeMs)
}

const offsetIn = (timeZone: string, timeMs: number) =>
  formatOf(timeZone, { timeZoneName: 'longOffset' }).formatToParts(timeMs).find(({ type }) => type === 'timeZoneName')!.value // prettier-ignore

/** The first instant behind `fromMs` that has another value than it. */
function nextChange(valueAt: (timeMs: number) => string, fromMs: number, stepMs: number, untilMs: number): number {
  let [low, high] = [fromMs, fromMs + stepMs]
  while (valueAt(high) === valueAt(fromMs)) {
    if (high > untilMs) return Infinity
    ;[low, high] = [high, high + stepMs]
  }
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2)
    if (valueAt(middle) === valueAt(fromMs)) low = middle
    else high = middle
  }
  return high
}

/** The first instant of the next day there. */
export function nextMidnight(timeZone: string, fromMs: number): number {
  return nextChange((timeMs) => dayIn(timeZone, timeMs), fromMs, HOUR_MS, fromMs + 60 * HOUR_MS)
}

/** When the clocks there are set forward or back; in rising order. */
export function clockChanges(timeZone: string, fromMs: number, untilMs: number): number[] {
  const changes: number[] = []
  for (let atMs = fromMs; ;) {
    atMs = nextChange((timeMs) => offsetIn(timeZone, timeMs), atMs, 6 * HOUR_MS, untilMs)
    if (atMs > untilMs) return changes
    changes.push(atMs)
  }
}
