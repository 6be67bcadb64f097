/**
 * A server that has handed over to another becomes read-only and keeps its connections open. Its name leads to the new one by
 * then, but only a new connection goes there: who kept the old ones would be refused until somebody started the process again.
 */
import type { Socket } from 'node:net'
import type { DriverConnection } from './silent-connection.ts'

/** The server, or its whole engine, is read-only. */
const READ_ONLY_ERRNOS = [1290, 1836]

/** From now on a statement that is refused because the server is read-only ends the connection; its caller gets that refusal. */
export function endWhenReadOnly(connection: DriverConnection): void {
  const { stream } = connection as unknown as { stream: Socket }
  const query = connection.query.bind(connection)
  connection.query = (...args) => {
    const done = args.at(-1)
    if (typeof done !== 'function') return query(...args)
    return query(...args.slice(0, -1), (fault: { errno?: number } | null, ...results: unknown[]) => {
      if (fault && READ_ONLY_ERRNOS.includes(fault.errno ?? 0)) stream.destroy()
      done(fault, ...results)
    })
  }
}
