/**
 * The only reader of the environment, for every process. All faults are said at once, each with what to do.
 */
import { createHash } from 'node:crypto'
import { Resolver } from 'node:dns'
import { existsSync } from 'node:fs'
import inspector from 'node:inspector'
import { join, resolve } from 'node:path'
import { tmpdir } from 'node:os'
import { LOG_LEVELS, type LogLevel } from './logger.ts'
import { misspeltSettings } from './misspelt-settings.ts'
import { readSecretsKey } from './secrets-key.ts'
import {
  caFileFaults,
  equalPortFaults,
  isCidr,
  isDecodable,
  mysqlUrlFaults,
  readEnvFile,
  readRetrySchedule,
  type NamedPort,
} from './setting-faults.ts'
import { findUnsafeSettings } from './unsafe-settings.ts'
import { readTracing, type TracingConfig } from './tracing-config.ts'

export interface Config {
  production: boolean
  host: string
  port: number
  daemonHost: string
  daemonPort: number
  /** undefined: `/operator/**` is served on the public port. */
  operatorPort: number | undefined
  /** Several API processes may listen on the same ports: one is there while another is restarted. */
  reusePort: boolean
  metricsPort: number | undefined
  metricsHost: string
  mockPort: number
  /** What the mock trusts instead of `deliveryCaFiles`. */
  mockCaFile: string | undefined
  receiverPort: number
  /** Absolute. */
  dataDir: string
  /** undefined: made from host and the port that was bound. */
  publicBaseUrl: string | undefined
  mysqlUrl: string
  mysqlMigrateUrl: string
  mysqlDaemonUrl: string
  /** True where no MYSQL_URL is set: `make run` starts a private server under the data folder. */
  privateDatabase: boolean
  mongodbUrl: string | undefined
  smtpUrl: string | undefined
  smsGatewayUrl: string | undefined
  messageGatewayUrl: string | undefined
  secretsKey: Buffer
  /** Starts also where the stored secrets are under another key, so that they can be replaced. */
  secretsKeyLost: boolean
  accessTokenTtlSeconds: number
  /** What the file of a report may have. */
  reportMaxBytes: number
  /** Waits after the first, second, … failed attempt. */
  retryScheduleSeconds: number[]
  warnAfterSeconds: number
  warnByClockSeconds: number
  deleteAfterSeconds: number
  minWarningLeadSeconds: number
  /** Requests in flight per webhook, over all daemons. */
  deliveryMaxInFlight: number
  /** Ranges that deliveries may reach besides public addresses. */
  deliveryAllowCidrs: string[]
  deliveryDenyCidrs: string[]
  /** True where the loopback ranges are open only because nothing was set (development). */
  loopbackOpenedByDefault: boolean
  /** Files with trust anchors besides the public ones. */
  deliveryCaFiles: string[]
  /** `address` or `address:port` of the name servers that are asked for endpoints; empty: the system's. */
  deliveryDnsServers: string[]
  mailFrom: string
  logRetentionDays: number
  payloadRetentionDays: number
  logLevel: LogLevel
  /** undefined: off. */
  tracing: TracingConfig | undefined
  /** Sentences about names in the environment that are nearly those of settings. */
  misspelt: string[]
}

export class ConfigError extends Error {
  readonly faults: string[]
  constructor(faults: string[]) {
    super(`the settings can't be used:\n${faults.map((fault) => `  - ${fault}`).join('\n')}`)
    this.faults = faults
  }
}

const DEFAULT_RETRY_SCHEDULE = '5,300,1800,7200,18000,18000,21600,19500'
const LOOPBACK_CIDRS = '127.0.0.0/8,::1/128'

/** Reads `.env` of the working folder into the environment; what is set there already wins. @throws ConfigError */
export function loadEnvFile(): void {
  const { values, faults } = readEnvFile('.env')
  if (faults.length > 0) throw new ConfigError(faults)
  for (const [name, value] of Object.entries(values)) process.env[name] ??= value
}

/**
 * @param env the environment
 * @throws ConfigError with every fault found
 */
export function readConfig(env: NodeJS.ProcessEnv = process.env): Config {
  const faults: string[] = []
  const known = new Set<string>()
  const raw = (name: string): string | undefined => {
    known.add(name)
    return env[name]
  }
  const text = (name: string): string | undefined => raw(name)?.trim() || undefined

  const integer = (name: string, fallback: number, min: number, max: number): number => {
    const value = text(name)
    if (value === undefined) return fallback
    const number = Number(value)
    if (/^\d+$/.test(value) && number >= min && number <= max) return number
    faults.push(`${name} must be a whole number from ${min} to ${max}, it is "${value}"`)
    return fallback
  }
  const flag = (name: string): boolean => {
    const value = text(name) ?? 'false'
    if (value !== 'true' && value !== 'false') faults.push(`${name} must be true or false, it is "${value}"`)
    return value === 'true'
  }
  const optionalPort = (name: string) => (text(name) === undefined ? undefined : integer(name, 0, 0, 65535))
  const url = (name: string, protocols: string[]): string | undefined => {
    const value = text(name)
    if (value === undefined) return undefined
    // The value itself is never repeated: it may hold a password.
    const protocol = URL.canParse(value) ? new URL(value).protocol : ''
    if (!protocols.includes(protocol))
      faults.push(`${name} must be a URL that begins with ${protocols.map((p) => `${p}//`).join(' or ')}`)
    else if (!isDecodable(new URL(value))) faults.push(`${name} has a % that begins no code: write %25`)
    return value
  }

  const nodeEnv = text('NODE_ENV') ?? 'development'
  if (!['development', 'test', 'production'].includes(nodeEnv)) {
    faults.push(`NODE_ENV must be development, test or production, it is "${nodeEnv}"`)
  }
  const production = nodeEnv === 'production'
  const dataDir = resolve(text('DATA_DIR') ?? '.data')
  const port = integer('PORT', 8080, 0, 65535)

  const readMysqlUrl = (name: string) => {
    const value = url(name, ['mysql:', 'mariadb:'])
    if (value && URL.canParse(value)) faults.push(...mysqlUrlFaults(name, value))
    return value
  }
  const mysqlUrl = readMysqlUrl('MYSQL_URL')
  const effectiveMysqlUrl = mysqlUrl ?? privateMysqlUrl(dataDir)

  const logLevel = (text('LOG_LEVEL') ?? 'info') as LogLevel
  if (!LOG_LEVELS.includes(logLevel))
    faults.push(`LOG_LEVEL must be one of ${LOG_LEVELS.join(', ')}, it is "${logLevel}"`)

  const retryScheduleSeconds = readRetrySchedule(
    text('RETRY_SCHEDULE') ?? DEFAULT_RETRY_SCHEDULE,
    DEFAULT_RETRY_SCHEDULE,
    faults,
  )
  // A shorter life of the webhook takes along what is not set.
  const deleteAfterSeconds = integer('DELETE_AFTER_SECONDS', 86_400, 1, 31_536_000)
  const warnByClockSeconds = integer('WARN_BY_CLOCK_SECONDS', Math.min(82_800, deleteAfterSeconds), 1, 31_536_000)
  const warnAfterSeconds = integer('WARN_AFTER_SECONDS', Math.min(43_200, warnByClockSeconds), 1, 31_536_000)
  if (production && (warnAfterSeconds !== 43_200 || warnByClockSeconds !== 82_800 || deleteAfterSeconds !== 86_400)) {
    faults.push(
      'production warns after 12 h, by the clock at 23 h, and deletes after 24 h: unset WARN_AFTER_SECONDS, WARN_BY_CLOCK_SECONDS and DELETE_AFTER_SECONDS',
    )
  }
  if (!(warnAfterSeconds <= warnByClockSeconds && warnByClockSeconds <= deleteAfterSeconds)) {
    faults.push('WARN_AFTER_SECONDS, WARN_BY_CLOCK_SECONDS and DELETE_AFTER_SECONDS must not decrease in this order')
  }

  const cidrsText = raw('DELIVERY_ALLOW_CIDRS')
  const loopbackOpenedByDefault = cidrsText === undefined && !production
  const cidrs = (name: string, list: string) => {
    const found = list.split(',').flatMap((cidr) => cidr.trim() || [])
    for (const cidr of found) {
      if (!isCidr(cidr)) faults.push(`${name}: "${cidr}" is no range such as 10.0.0.0/8 or fd00::/8`)
    }
    return found
  }
  const deliveryAllowCidrs = cidrs('DELIVERY_ALLOW_CIDRS', cidrsText ?? (loopbackOpenedByDefault ? LOOPBACK_CIDRS : ''))
  const deliveryDenyCidrs = cidrs('DELIVERY_DENY_CIDRS', text('DELIVERY_DENY_CIDRS') ?? '')

  const deliveryDnsServers = (text('DELIVERY_DNS_SERVERS') ?? '').split(',').flatMap((server) => server.trim() || [])
  try {
    new Resolver().setServers(deliveryDnsServers)
  } catch {
    faults.push('DELIVERY_DNS_SERVERS must be comma-separated addresses such as 10.0.0.2 or 10.0.0.2:5353')
  }
  const readCaFile = (name: string) => {
    const file = text(name)
    if (file) faults.push(...caFileFaults(name, file))
    return file
  }
  const caFile = readCaFile('DELIVERY_CA_FILE')
  const developmentCa = join(dataDir, 'dev-tls', 'ca.pem')
  const deliveryCaFiles = [
    ...(caFile ? [caFile] : []),
    ...(!production && existsSync(developmentCa) ? [developmentCa] : []),
  ]

  if (raw('NODE_TLS_REJECT_UNAUTHORIZED') === '0') {
    faults.push(
      'NODE_TLS_REJECT_UNAUTHORIZED=0 switches the check of certificates off: unset it, and use DELIVERY_CA_FILE for a private authority',
    )
  }

  const smtpUrl = url('SMTP_URL', ['smtp:', 'smtps:'])
  if (smtpUrl && /^smtps?:\/\/([^/@]*@)?(:|\/|\?|#|$)/i.test(smtpUrl)) faults.push('SMTP_URL names no host')
  const smsGatewayUrl = url('SMS_GATEWAY_URL', ['http:', 'https:'])
  const messageGatewayUrl = url('MESSAGE_GATEWAY_URL', ['http:', 'https:'])
  if (production) {
    const missing = {
      SMTP_URL: smtpUrl,
      SMS_GATEWAY_URL: smsGatewayUrl,
      MESSAGE_GATEWAY_URL: messageGatewayUrl,
      MYSQL_URL: mysqlUrl,
    }
    for (const [name, value] of Object.entries(missing)) if (!value) faults.push(`${name} must be set in production`)
  }

  const publicBaseUrl = url('PUBLIC_BASE_URL', ['http:', 'https:'])?.replace(/(?<!\/)\/+$/, '')
  if (publicBaseUrl && /[?#]/.test(publicBaseUrl)) {
    faults.push('PUBLIC_BASE_URL must have no ? and no #: paths are put behind it')
  }
  const secretsKey = readSecretsKey(text('SECRETS_KEY'), production, dataDir, faults)
  if (production) {
    // One that is missing is said already.
    const given = text('SECRETS_KEY') === undefined ? Buffer.alloc(0) : secretsKey
    faults.push(...findUnsafeSettings(env, given, process.execArgv, inspector.url()))
  }

  const config: Config = {
    production,
    host: text('HOST') ?? '127.0.0.1',
    port,
    daemonHost: text('DAEMON_HOST') ?? '127.0.0.1',
    daemonPort:
      text('DAEMON_PORT') === undefined
        ? port === 0
          ? 0
          : Math.min(port + 1, 65535)
        : integer('DAEMON_PORT', 0, 0, 65535),
    operatorPort: optionalPort('OPERATOR_PORT'),
    reusePort: flag('REUSE_PORT'),
    metricsPort: optionalPort('METRICS_PORT'),
    metricsHost: text('METRICS_HOST') ?? '127.0.0.1',
    mockPort: integer('MOCK_PORT', 4010, 0, 65535),
    mockCaFile: readCaFile('MOCK_CA_FILE'),
    receiverPort: integer('RECEIVER_PORT', 9443, 0, 65535),
    dataDir,
    publicBaseUrl,
    mysqlUrl: effectiveMysqlUrl,
    mysqlMigrateUrl: readMysqlUrl('MYSQL_MIGRATE_URL') ?? effectiveMysqlUrl,
    mysqlDaemonUrl: readMysqlUrl('MYSQL_DAEMON_URL') ?? effectiveMysqlUrl,
    privateDatabase: mysqlUrl === undefined,
    mongodbUrl: url('MONGODB_URL', ['mongodb:', 'mongodb+srv:']),
    smtpUrl,
    smsGatewayUrl,
    messageGatewayUrl,
    secretsKey,
    secretsKeyLost: flag('SECRETS_KEY_LOST'),
    accessTokenTtlSeconds: integer('ACCESS_TOKEN_TTL_SECONDS', 600, 1, 86_400),
    reportMaxBytes: integer('REPORT_MAX_BYTES', 20 * 1024 * 1024, 1024, 1024 ** 3),
    retryScheduleSeconds,
    warnAfterSeconds,
    warnByClockSeconds,
    deleteAfterSeconds,
    minWarningLeadSeconds: integer('MIN_WARNING_LEAD_SECONDS', 0, 0, 31_536_000),
    deliveryMaxInFlight: integer('DELIVERY_MAX_IN_FLIGHT', 10, 1, 100),
    deliveryAllowCidrs,
    deliveryDenyCidrs,
    loopbackOpenedByDefault,
    deliveryCaFiles,
    deliveryDnsServers,
    mailFrom: text('MAIL_FROM') ?? 'Laboratory Integration Service <no-reply@localhost>',
    logRetentionDays: integer('LOG_RETENTION_DAYS', 90, 1, 3650),
    payloadRetentionDays: integer('PAYLOAD_RETENTION_DAYS', 30, 1, 3650),
    logLevel,
    tracing: readTracing({ text, url, integer, faults }),
    // Behind all that ask for a setting.
    misspelt: misspeltSettings(env, known),
  }
  // One that is not set is left to who listens: a process that has a machine for itself need not know of the others' ports.
  faults.push(...equalPortFaults(portsOf(config).filter(({ setting }) => text(setting) !== undefined)))
  if (faults.length > 0) throw new ConfigError(faults)
  return config
}

/** Which setting the migrations' URL comes from. */
export function migrateSetting({ mysqlUrl, mysqlMigrateUrl }: Config): string {
  return mysqlMigrateUrl === mysqlUrl ? 'MYSQL_URL' : 'MYSQL_MIGRATE_URL'
}

/** What the API and the daemon listen on. */
export function portsOf(config: Config): NamedPort[] {
  const { host, metricsHost, daemonHost } = config
  return [
    { setting: 'PORT', host, port: config.port },
    { setting: 'DAEMON_PORT', host: daemonHost, port: config.daemonPort },
    { setting: 'OPERATOR_PORT', host, port: config.operatorPort },
    { setting: 'METRICS_PORT', host: metricsHost, port: config.metricsPort },
  ]
}

/** Linux: `sun_path` holds 108 bytes with the final zero (unix(7)); macOS: 104. */
const SOCKET_PATH_MAX_BYTES = 103

/**
 * Where the private server of `make run` listens: in the data folder, or, when that name is too long for a socket, in a
 * short folder that follows from it, so that every process finds the same one.
 */
export function privateMysqlUrl(dataDir: string): string {
  const inDataDir = join(dataDir, 'mysql.sock')
  const name = createHash('sha256').update(dataDir).digest('hex').slice(0, 12)
  const elsewhere = join(tmpdir(), `lis-${process.getuid?.() ?? 0}-${name}`, 'mysql.sock')
  const socketPath = Buffer.byteLength(inDataDir) <= SOCKET_PATH_MAX_BYTES ? inDataDir : elsewhere
  return `mysql://root@localhost/lis?socketPath=${encodeURIComponent(socketPath)}`
}
