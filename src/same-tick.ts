/**
 * Calls that come within one turn of the event loop become one call: under load many requests are read in the same turn, and what
 * each of them asks the database for goes in one round trip. Nobody waits for others to come; where so many groups are under way
 * that a further one would only compete with them, what comes meanwhile makes the next group.
 */
import { withoutDeadline } from '../db/deadline.ts'

/** Longer statements gain nothing more. */
const MOST_AT_ONCE = 64

interface GroupLimits<Key> {
  /** Calls of one group. */
  size?: number
  /** Groups under way at once. */
  groups?: number
  /** Of several calls for the same thing each is in a group of its own. */
  apart?: (key: Key) => string
}

/** @param work answers several at once, in their order; where it throws, all of them fail with it */
export function togetherInTick<Key, Value>(
  work: (keys: Key[]) => Promise<Value[]>,
  { size = MOST_AT_ONCE, groups = Infinity, apart }: GroupLimits<Key> = {},
): (key: Key) => Promise<Value> {
  interface Call {
    key: Key
    resolve: (value: Value) => void
    reject: (error: unknown) => void
  }
  let waiting: Call[] = []
  let underWay = 0
  let isSet = false

  function nextGroup(): Call[] {
    if (!apart) return waiting.splice(0, size)
    const seen = new Set<string>()
    const group: Call[] = []
    const others: Call[] = []
    for (const call of waiting) {
      const thing = apart(call.key)
      if (group.length === size || seen.has(thing)) others.push(call)
      else group.push(call)
      seen.add(thing)
    }
    waiting = others
    return group
  }

  function start(): void {
    const calls = nextGroup()
    underWay += 1
    // What is done for several is under the deadline of none of them: each waits for its own time.
    withoutDeadline(() => work(calls.map(({ key }) => key)))
      .then(
        (values) => calls.forEach(({ resolve }, n) => resolve(values[n]!)),
        (error: unknown) => calls.forEach(({ reject }) => reject(error)),
      )
      .finally(() => {
        underWay -= 1
        startSoon()
      })
  }

  function startSoon(): void {
    if (isSet || waiting.length === 0 || underWay >= groups) return
    isSet = true
    setImmediate(() => {
      isSet = false
      while (waiting.length > 0 && underWay < groups) start()
    })
  }

  return (key) =>
    new Promise((resolve, reject) => {
      waiting.push({ key, resolve, reject })
      if (waiting.length >= size && underWay < groups) start()
      else startSoon()
    })
}
