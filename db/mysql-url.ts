/**
 * What a `mysql://` URL says: where the server is, who asks, and how the way there is protected. The parameters have the names
 * and values of MySQL's own clients (https://dev.mysql.com/doc/refman/9.0/en/connection-options.html).
 */
import { readFileSync } from 'node:fs'
import { isIP } from 'node:net'
import type { ConnectionOptions, SslOptions } from 'mysql2'

const TLS_MODES: Record<string, SslOptions | undefined> = {
  DISABLED: undefined,
  /** Encrypted, whoever answers. */
  REQUIRED: { rejectUnauthorized: false },
  VERIFY_CA: { rejectUnauthorized: true },
  VERIFY_IDENTITY: { rejectUnauthorized: true, verifyIdentity: true },
}

/**
 * Reads `mysql://user:password@host:port/database`; a private server is reached by `?socketPath=/path` instead of a port.
 * @throws when it is not such a URL, or its `ssl-ca` can't be read
 */
export function parseMysqlUrl(text: string): ConnectionOptions {
  const url = new URL(text)
  if (url.protocol !== 'mysql:' && url.protocol !== 'mariadb:') throw new Error('it must begin with mysql://')
  const database = decodeURIComponent(url.pathname.slice(1))
  if (!database) throw new Error('it names no database: end it with /<database>')
  const socketPath = url.searchParams.get('socketPath')
  const ssl = tlsOptions(url)
  return {
    ...(socketPath ? { socketPath } : { host: hostOf(url), port: Number(url.port || 3306) }),
    user: decodeURIComponent(url.username || 'root'),
    password: decodeURIComponent(url.password),
    database,
    ...(ssl ? { ssl } : {}),
  }
}

function hostOf(url: URL): string {
  return url.hostname.replace(/^\[|\]$/g, '')
}

/** An authority that is named is one that is asked for, as for MySQL's own clients. */
function modeOf({ searchParams }: URL): string {
  return searchParams.get('ssl-mode')?.toUpperCase() ?? (searchParams.has('ssl-ca') ? 'VERIFY_CA' : 'DISABLED')
}

function tlsOptions(url: URL): SslOptions | undefined {
  const mode = TLS_MODES[modeOf(url)]
  if (!mode) return undefined
  const caFile = url.searchParams.get('ssl-ca')
  return caFile ? { ...mode, ca: readFileSync(caFile, 'utf8') } : { ...mode }
}

/** Of a URL that can be parsed. What promises protection and is not understood must not be passed over. */
export function mysqlTlsFaults(
  name: string,
  url: URL,
  caFileFaults: (name: string, file: string) => string[],
): string[] {
  const { searchParams } = url
  const unknown = [...searchParams.keys()].filter(
    (key) => /ssl|tls|secure/i.test(key) && key !== 'ssl-mode' && key !== 'ssl-ca',
  )
  const mode = modeOf(url)
  const isKnown = Object.hasOwn(TLS_MODES, mode)
  const caFile = searchParams.get('ssl-ca')
  return [
    ...unknown.map((key) => `${name} has ${key}, which is not known: write ssl-mode and, if need be, ssl-ca`),
    ...(isKnown ? [] : [`${name}: ssl-mode must be one of ${Object.keys(TLS_MODES).join(', ')}`]),
    // The driver would hold the certificate of an address against "localhost".
    ...(mode === 'VERIFY_IDENTITY' && (searchParams.has('socketPath') || isIP(hostOf(url)) !== 0)
      ? [`${name}: VERIFY_IDENTITY needs the server's name instead of its address; VERIFY_CA does without`]
      : []),
    ...(caFile === null ? [] : caFileFaults(`${name}: ssl-ca`, caFile)),
  ]
}
