/**
 * A server that is gone without a word (its machine lost power, a firewall dropped the connection) never answers and never
 * closes. Left alone, each statement that waits for it keeps a connection of the pool, until none is left.
 */
import type { Socket } from 'node:net'

/**
 * A statement that is unanswered for so long ends its connection, in milliseconds. No request waits longer, and no statement
 * of the daemon needs it.
 */
const SILENCE_LIMIT_MS = 5000

/** What both pools have in common: a connection of mysql2. */
export interface DriverConnection {
  query(...args: any[]): { once(event: 'end', listener: () => void): unknown }
}

/** From now on a statement that is unanswered for too long ends the connection, and its caller gets a connection fault. */
export function endWhenSilent(connection: DriverConnection): void {
  const { stream } = connection as unknown as { stream: Socket }
  const query = connection.query.bind(connection)
  connection.query = (...args) => {
    const timer = setTimeout(() => stream.destroy(), SILENCE_LIMIT_MS)
    timer.unref()
    const command = query(...args)
    command.once('end', () => clearTimeout(timer))
    return command
  }
}
