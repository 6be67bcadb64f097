/**
 * One wide line per unit of work, from an allow list of fields: a field that is not listed here is dropped, so a patient's
 * data, a token or a secret can't reach a log by being passed along.
 */
import pino from 'pino'
import { DomainError } from './errors.ts'
import { createLogDestination, type LogDestination } from './log-destination.ts'

const ALLOWED_FIELDS = [
  'accountId', 'attempt', 'batch', 'by', 'class', 'clientId', 'code', 'daemon', 'database', 'deliveries', 'durationMs', 'errno', 'events',
  'eventId', 'eventType', 'file', 'from', 'host', 'jumpMs', 'labId', 'lanes', 'method', 'migration', 'operation', 'pid',
  'port', 'reason', 'requestId', 'route', 'rows', 'slowestMs', 'stack', 'state', 'status', 'to', 'traceId', 'version', 'waitMs', 'webhookId',
] as const // prettier-ignore

export type LogFields = Partial<Record<(typeof ALLOWED_FIELDS)[number], string | number | boolean | null | undefined>>

export interface Logger {
  debug(event: string, fields?: LogFields): void
  info(event: string, fields?: LogFields): void
  /** Something is off that mends itself. */
  warn(event: string, fields?: LogFields): void
  /** Only where a person must act. */
  error(event: string, fields?: LogFields): void
}

/** Of all loggers of this process. */
let standardError: LogDestination | undefined

export const LOG_LEVELS = ['debug', 'info', 'warn', 'error', 'silent'] as const
export type LogLevel = (typeof LOG_LEVELS)[number]

export function createLogger(
  service: 'api' | 'daemon' | 'migrate' | 'run',
  level: LogLevel,
  stream?: LogDestination,
): Logger {
  const destination =
    stream ?? (standardError ??= createLogDestination(2, (rows) => logger.warn('log.lines_dropped', { rows })))
  const options = { level, base: { service }, timestamp: pino.stdTimeFunctions.isoTime, messageKey: 'event' }
  const base = pino(options, destination)
  const write =
    (method: 'debug' | 'info' | 'warn' | 'error') =>
    (event: string, fields: LogFields = {}) => {
      if (!base.isLevelEnabled(method)) return
      const allowed: Record<string, unknown> = {}
      for (const name of ALLOWED_FIELDS) if (fields[name] !== undefined) allowed[name] = fields[name]
      base[method](allowed, event)
    }
  const logger: Logger = { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') }
  return logger
}

/** What is logged of a fault that is no fault of ours: its name, as the driver or the system gives it. */
export function causeFields(cause: unknown): LogFields {
  if (!(cause instanceof Error)) return {}
  const { code, errno, database } = errorFields(cause)
  return { reason: code ?? cause.name, errno, database }
}

/**
 * What of an error may be logged: its code and where it was thrown. Its message may quote a value (a driver's duplicate
 * key error names the key), so the message is left out.
 */
export function errorFields(error: unknown): LogFields {
  if (!(error instanceof Error)) return { reason: typeof error }
  // A refusal of ours has the code that a caller gets.
  const fault = error instanceof DomainError && error.cause instanceof Error ? error.cause : error
  // MongoDB's codes are numbers, beside which it gives their names.
  const { code, codeName, errno } = fault as { code?: unknown; codeName?: unknown; errno?: unknown }
  return {
    reason: error.name,
    code: [code, codeName].find((name) => typeof name === 'string') as string | undefined,
    errno: typeof errno === 'number' ? errno : undefined,
    database: databaseStateOf(fault),
    stack: (error.stack ?? '')
      .split('\n')
      .filter((line) => line.startsWith('    at '))
      .slice(0, 8)
      .map((line) => line.trim())
      .join(' | '),
  }
}

/**
 * A connection that fails has a code of the system's, such as ENOENT of a socket, which a file, a mail server or a gateway may
 * have as well. The database's are told by a mark that its driver puts on what ends a connection, and by knex's name for waiting
 * in vain. What the server itself answers has a code of its own.
 */
function databaseStateOf(fault: Error): string | undefined {
  const { fatal, sqlState } = fault as { fatal?: unknown; sqlState?: unknown }
  const isLate = fault.name === 'KnexTimeoutError' || (fault instanceof DomainError && fault.kind === 'unavailable')
  return isLate || (fatal === true && sqlState === undefined) ? 'does not answer' : undefined
}
