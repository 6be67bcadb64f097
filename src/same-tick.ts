/**
 * Calls that come within one turn of the event loop become one call: under load many requests are read in the same turn, and what
 * each of them asks the database for goes in one round trip. Nobody waits for others to come.
 */
import { withoutDeadline } from '../db/deadline.ts'

/** Longer statements gain nothing more. */
const MOST_AT_ONCE = 64

/** @param work answers several at once, in their order; where it throws, all of them fail with it */
export function togetherInTick<Key, Value>(work: (keys: Key[]) => Promise<Value[]>): (key: Key) => Promise<Value> {
  let waiting: { key: Key; resolve: (value: Value) => void; reject: (error: unknown) => void }[] = []

  function start(): void {
    const calls = waiting
    waiting = []
    // What is done for several is under the deadline of none of them: each waits for its own time.
    withoutDeadline(() => work(calls.map(({ key }) => key))).then(
      (values) => calls.forEach(({ resolve }, n) => resolve(values[n]!)),
      (error: unknown) => calls.forEach(({ reject }) => reject(error)),
    )
  }

  return (key) =>
    new Promise((resolve, reject) => {
      if (waiting.length === 0) setImmediate(() => waiting.length > 0 && start())
      waiting.push({ key, resolve, reject })
      if (waiting.length === MOST_AT_ONCE) start()
    })
}
