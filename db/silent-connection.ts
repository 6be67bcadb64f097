/**
 * A server that is gone without a word (its machine lost power, a firewall forgot its connections) never answers and never
 * closes. Left alone, each statement that waits for it keeps a connection of the pool, until none is left; and the others
 * that are open are found out one after another, each at the cost of a request.
 */
import type { Socket } from 'node:net'
import { monotonicMs } from '../src/clock.ts'

/**
 * A statement that is unanswered for so long ends its connection, in milliseconds. No request waits longer, and no statement
 * of the daemon needs it.
 */
const SILENCE_LIMIT_MS = 5000

/**
 * After so long, in milliseconds, the connections that nobody uses are asked whether they still work. It may as well be a
 * statement that takes its time, or waits for a lock: then they answer.
 */
const SUSPICION_MS = 1000

/** A connection that has nothing to do but to answer this, and does not, has ended. In milliseconds. */
const PING_LIMIT_MS = 2000

/** What both pools have in common: a connection of mysql2. */
export interface DriverConnection {
  query(...args: any[]): { once(event: 'end', listener: () => void): unknown }
}

interface Watched {
  connection: { stream: Socket; ping(done: (error: unknown) => void): unknown }
  /** Statements under way. */
  pending: number
  answeredAtMs: number
}

/** The open connections of one process to one database, of all of its pools. */
export class ConnectionWatch {
  readonly #open = new Set<Watched>()

  /** From now on a statement that is unanswered for too long ends the connection, and its caller gets a connection fault. */
  add(driverConnection: DriverConnection): void {
    const connection = driverConnection as DriverConnection & Watched['connection']
    const watched: Watched = { connection, pending: 0, answeredAtMs: monotonicMs() }
    this.#open.add(watched)
    connection.stream.once('close', () => this.#open.delete(watched))
    const query = connection.query.bind(connection)
    connection.query = (...args) => {
      const askedAtMs = monotonicMs()
      let timer = setTimeout(() => {
        this.#askIdle(askedAtMs)
        timer = setTimeout(() => connection.stream.destroy(), SILENCE_LIMIT_MS - SUSPICION_MS)
        timer.unref()
      }, SUSPICION_MS)
      timer.unref()
      watched.pending += 1
      const command = query(...args)
      command.once('end', () => {
        clearTimeout(timer)
        watched.pending -= 1
        watched.answeredAtMs = monotonicMs()
      })
      return command
    }
  }

  /** Ends each unused connection that does not answer. What has answered since `sinceMs` is left alone. */
  #askIdle(sinceMs: number): void {
    for (const { connection, pending, answeredAtMs } of this.#open) {
      if (pending > 0 || answeredAtMs > sinceMs) continue
      const timer = setTimeout(() => connection.stream.destroy(), PING_LIMIT_MS)
      timer.unref()
      connection.ping(() => clearTimeout(timer))
    }
  }
}
