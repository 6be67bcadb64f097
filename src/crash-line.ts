/**
 * The last line of a process that an error nobody expected ends. Node's own report quotes the error's message, and a driver's
 * message quotes values: a statement with everything that was to be written, a name, a number.
 */
import { errorFields, type Logger } from './logger.ts'

/** Ends the process with code 1, as Node would; its supervisor starts it again. */
export function endOnCrash(logger: Logger): void {
  // A promise that is rejected and handled by nobody arrives here, too.
  process.on('uncaughtException', (error) => {
    logger.error('process.crashed', { ...errorFields(error), pid: process.pid })
    process.exit(1)
  })
}
