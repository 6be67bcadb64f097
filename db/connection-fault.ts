/**
 * Why a database can't be used, in one sentence that says what to do.
 */
import { parseMysqlUrl } from './mysql-url.ts'

const ER_ACCESS_DENIED_TO_DATABASE = 1044
/**
 * The second is MariaDB's, for a user who may only come from this machine's own account. The third is MySQL's since 8.4, which asks
 * every other user whom it does not know for a kind of password that it has not loaded; and one who has such a password.
 */
const ACCESS_DENIED = [1045, 1698, 1524]
/** A node of a Galera cluster that has lost the others, or has not caught up with them. */
const NODE_NOT_READY = 1047
const ER_BAD_DATABASE = 1049
const ER_SECURE_TRANSPORT_REQUIRED = 3159
/** On a table, on a column, and of the whole server. */
const RIGHT_MISSING = [1142, 1143, 1227]
/** What the server answers has a number from here on; the operating system's are below, or negative. */
const FIRST_SERVER_ERRNO = 1000

export function isRightMissing(error: unknown): boolean {
  return RIGHT_MISSING.includes((error as NodeJS.ErrnoException).errno ?? 0)
}

/** By a server that is there: of the database, or of what is to be done in it. */
export function isDatabaseRefused(error: unknown): boolean {
  const { errno = 0 } = error as NodeJS.ErrnoException
  return [ER_ACCESS_DENIED_TO_DATABASE, ER_BAD_DATABASE].includes(errno) || isRightMissing(error)
}

export function isAccessDenied(error: unknown): boolean {
  return ACCESS_DENIED.includes((error as NodeJS.ErrnoException).errno ?? 0)
}

/**
 * @param setting where the URL comes from
 * @param error what the attempt to use it has thrown
 */
export function describeConnectionFault(error: unknown, mysqlUrl: string, setting = 'MYSQL_URL'): string {
  const { errno = 0, code, name, message, sqlMessage } = error as NodeJS.ErrnoException & { sqlMessage?: string }
  const { user, database, socketPath, host, port, ssl } = parseMysqlUrl(mysqlUrl)
  const where = socketPath ?? `${host}:${port}`
  if (errno === ER_SECURE_TRANSPORT_REQUIRED) {
    return `the database at ${where} takes TLS only: add ?ssl-mode=VERIFY_IDENTITY (or VERIFY_CA, or REQUIRED) to ${setting}`
  }
  if (isAccessDenied(error)) {
    // MariaDB says the same where it takes TLS only.
    const tls = ssl || socketPath ? '' : ', or add ?ssl-mode=VERIFY_IDENTITY to it if the server takes TLS only'
    return `the database at ${where} refuses the user ${user}: correct the user or the password in ${setting}${tls}`
  }
  if (errno === ER_ACCESS_DENIED_TO_DATABASE) {
    return `the user ${user} may not use or create the database ${database} at ${where}: have it created and granted by its administrator`
  }
  if (errno === NODE_NOT_READY) {
    return `the database at ${where} is a node of a cluster and not ready (${sqlMessage ?? message}): see to the cluster, or name another node in ${setting}`
  }
  if (errno === ER_BAD_DATABASE) {
    return `there is no database ${database} at ${where}: run make migrate, or correct ${setting}`
  }
  if (isRightMissing(error)) {
    return `the user ${user} lacks a right on the database ${database} at ${where} (${sqlMessage}): have it granted, as the README lists them, or correct ${setting}`
  }
  if (code === 'HANDSHAKE_NO_SSL_SUPPORT') {
    return `the database at ${where} offers no TLS: give it a certificate, or take ssl-mode out of ${setting}`
  }
  if (code === 'HANDSHAKE_SSL_ERROR') {
    return `the database at ${where} is not trusted (${message.split(';')[0]}): name its authority's file as ssl-ca in ${setting}, or correct its certificate`
  }
  const what = code ?? (errno || (name === 'Error' ? message : name))
  if (errno >= FIRST_SERVER_ERRNO)
    return `the database at ${where} refuses to work (${what}): see to it, or correct ${setting}`
  return `no database answers at ${where} (${what}): start it, or correct ${setting}`
}
