/** Decisions 10, and what production is refused without: what each setting is where nobody sets it. */
import { randomBytes } from 'node:crypto'
import { expect, test } from 'vitest'
import { ConfigError, portsOf, readConfig } from '../src/config.ts'

const KEY = randomBytes(32).toString('base64')
const TEST = { NODE_ENV: 'test', DATA_DIR: '/nonexistent', SECRETS_KEY: KEY }
const PRODUCTION = {
  NODE_ENV: 'production',
  DATA_DIR: '/nonexistent',
  SECRETS_KEY: KEY,
  MYSQL_URL: 'mysql://lis:0f4c81a2@db.internal/lis',
  SMTP_URL: 'smtps://mail.internal',
  SMS_GATEWAY_URL: 'https://sms.internal/send',
  MESSAGE_GATEWAY_URL: 'https://messages.internal/send',
}
const LOOPBACK = ['127.0.0.0/8', '::1/128']

function faultsOf(env: NodeJS.ProcessEnv): string[] {
  try {
    readConfig(env)
    return []
  } catch (error) {
    return (error as ConfigError).faults
  }
}

const without = (name: string) => Object.fromEntries(Object.entries(PRODUCTION).filter(([known]) => known !== name))

test('defaults are those of the decisions', () => {
  expect(readConfig(TEST)).toMatchObject({
    port: 8080,
    host: '127.0.0.1',
    daemonPort: 8081,
    daemonHost: '127.0.0.1',
    metricsHost: '127.0.0.1',
    metricsPort: undefined,
    operatorPort: undefined,
    mockPort: 4010,
    privateDatabase: true,
    accessTokenTtlSeconds: 600,
    retryScheduleSeconds: [5, 300, 1800, 7200, 18_000, 18_000, 21_600, 19_500],
    warnAfterSeconds: 43_200,
    warnByClockSeconds: 82_800,
    deleteAfterSeconds: 86_400,
    minWarningLeadSeconds: 0,
    deliveryMaxInFlight: 10,
    logRetentionDays: 90,
    payloadRetentionDays: 30,
    logLevel: 'info',
  })
  expect(readConfig({ ...TEST, DATA_DIR: undefined }).dataDir).toMatch(/\/\.data$/)
})

test('nothing that only this machine needs is open to others unless that is asked for', () => {
  const open = { ...TEST, HOST: '0.0.0.0', METRICS_PORT: '9001', OPERATOR_PORT: '9002' }
  const hosts = Object.fromEntries(portsOf(readConfig(open)).map(({ setting, host }) => [setting, host]))
  expect(hosts).toEqual({
    PORT: '0.0.0.0',
    OPERATOR_PORT: '0.0.0.0',
    DAEMON_PORT: '127.0.0.1',
    METRICS_PORT: '127.0.0.1',
  })
})

test('loopback is open to deliveries outside production alone, and nothing where it is set to nothing', () => {
  const opened = (env: NodeJS.ProcessEnv) => {
    const { deliveryAllowCidrs, loopbackOpenedByDefault } = readConfig(env)
    return [deliveryAllowCidrs, loopbackOpenedByDefault]
  }
  expect(opened(TEST)).toEqual([LOOPBACK, true])
  expect(opened({ ...TEST, DELIVERY_ALLOW_CIDRS: '' })).toEqual([[], false])
  expect(opened({ ...TEST, DELIVERY_ALLOW_CIDRS: '10.0.0.0/8' })).toEqual([['10.0.0.0/8'], false])
  expect(opened(PRODUCTION)).toEqual([[], false])
})

test('production starts with what it needs', () => {
  expect(faultsOf(PRODUCTION)).toEqual([])
})

test.each(['MYSQL_URL', 'SMTP_URL', 'SMS_GATEWAY_URL', 'MESSAGE_GATEWAY_URL', 'SECRETS_KEY'])(
  'production does not start without %s',
  (name) => {
    expect(faultsOf(without(name))).toEqual([expect.stringMatching(new RegExp(`^${name} must be set in production`))])
  },
)

test.each([
  ['WARN_AFTER_SECONDS', '43199'],
  ['WARN_BY_CLOCK_SECONDS', '82799'],
  ['DELETE_AFTER_SECONDS', '86401'],
])('production does not start with another %s', (name, value) => {
  expect(faultsOf({ ...PRODUCTION, [name]: value })).toEqual([
    expect.stringContaining('production warns after 12 h, by the clock at 23 h, and deletes after 24 h'),
  ])
})

test.each([TEST, PRODUCTION])('nothing starts with the check of certificates switched off', (env) => {
  expect(faultsOf({ ...env, NODE_TLS_REJECT_UNAUTHORIZED: '0' })).toEqual([
    expect.stringMatching(/^NODE_TLS_REJECT_UNAUTHORIZED=0 switches the check of certificates off/),
  ])
})
