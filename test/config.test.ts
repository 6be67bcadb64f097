import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { rootCertificates } from 'node:tls'
import { afterAll, describe, expect, test } from 'vitest'
import { refuseTakenPorts } from '../scripts/ports.ts'
import { ConfigError, readConfig } from '../src/config.ts'
import { readEnvFile } from '../src/setting-faults.ts'

const BASE = { NODE_ENV: 'test', DATA_DIR: '/nonexistent', SECRETS_KEY: Buffer.alloc(32, 7).toString('base64') }
const folder = mkdtempSync(join(tmpdir(), 'lis-config-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

function faultsOf(env: Record<string, string>): string[] {
  try {
    readConfig({ ...BASE, ...env })
    return []
  } catch (error) {
    return (error as ConfigError).faults
  }
}

test.each<[env: Record<string, string>, periods: number[]]>([
  [{}, [43_200, 82_800, 86_400]],
  [{ DELETE_AFTER_SECONDS: '6' }, [6, 6, 6]],
  [{ WARN_AFTER_SECONDS: '3', DELETE_AFTER_SECONDS: '6' }, [3, 6, 6]],
  [{ WARN_BY_CLOCK_SECONDS: '5', DELETE_AFTER_SECONDS: '50000' }, [5, 5, 50_000]],
  [{ DELETE_AFTER_SECONDS: '172800' }, [43_200, 82_800, 172_800]],
])('periods of the life cycle that are not set are no longer than those behind them: %j', (env, periods) => {
  const { warnAfterSeconds, warnByClockSeconds, deleteAfterSeconds } = readConfig({ ...BASE, ...env })
  expect([warnAfterSeconds, warnByClockSeconds, deleteAfterSeconds]).toEqual(periods)
})

test.each(['WARN_AFTER_SECONDS', 'WARN_BY_CLOCK_SECONDS'])('periods that decrease are refused: %s', (name) => {
  expect(faultsOf({ DELETE_AFTER_SECONDS: '6', [name]: '7' })).toEqual([
    'WARN_AFTER_SECONDS, WARN_BY_CLOCK_SECONDS and DELETE_AFTER_SECONDS must not decrease in this order',
  ])
})

test.each([['99999999999999999999'], ['5,31536001'], ['0'], ['5,'], ['1e3'], [`1${',1'.repeat(1000)}`]])(
  'a schedule of retries whose dates nothing could hold, or that is none, is refused: %.20s',
  (schedule) => {
    expect(faultsOf({ RETRY_SCHEDULE: schedule })).toEqual([
      expect.stringMatching(/^RETRY_SCHEDULE must be comma-separated seconds above 0 and up to 31536000/),
    ])
  },
)

test('a schedule of retries may wait a part of a second, and a year', () => {
  expect(readConfig({ ...BASE, RETRY_SCHEDULE: '0.5, 31536000' }).retryScheduleSeconds).toEqual([0.5, 31_536_000])
})

describe('DELIVERY_CA_FILE', () => {
  const [first, second] = rootCertificates
  const faultsOfFile = (content: string) => {
    const file = join(folder, 'ca.pem')
    writeFileSync(file, content)
    return faultsOf({ DELIVERY_CA_FILE: file })
  }

  test('may have several certificates, and anything between them', () => {
    expect(faultsOfFile(`# of the laboratory\n${first}\r\n\n# of its supplier\n${second}`)).toEqual([])
    expect(faultsOfFile(first!.replaceAll('CERTIFICATE', 'TRUSTED CERTIFICATE'))).toEqual([])
  })

  test('that trusts nobody is refused, with what is wrong about it', () => {
    const file = join(folder, 'ca.pem')
    const damaged = `DELIVERY_CA_FILE: a certificate of ${file} is damaged: copy the file anew, or name another PEM file`
    expect(faultsOfFile('root:x:0:0:root:/root:/bin/bash\n')).toEqual([
      `DELIVERY_CA_FILE: ${file} has no certificate: name a PEM file (-----BEGIN CERTIFICATE-----)`,
    ])
    expect(faultsOfFile(`${first}\n${second!.slice(0, 600)}`)).toEqual([damaged])
    expect(faultsOfFile(first!.replace('MII', 'MIX'))).toEqual([damaged])
    expect(faultsOf({ DELIVERY_CA_FILE: join(folder, 'none.pem') })).toEqual([
      `DELIVERY_CA_FILE: there is no file ${folder}/none.pem`,
    ])
    expect(faultsOf({ DELIVERY_CA_FILE: folder })).toEqual([
      `DELIVERY_CA_FILE: ${folder} is a folder: name a PEM file in it`,
    ])
  })

  test('of the mock is checked as well', () => {
    expect(faultsOf({ MOCK_CA_FILE: join(folder, 'none.pem') })).toEqual([
      `MOCK_CA_FILE: there is no file ${folder}/none.pem`,
    ])
  })
})

test.each(['MYSQL_URL', 'MYSQL_MIGRATE_URL', 'MYSQL_DAEMON_URL'])(
  '%s that names no database, or can not be decoded, is refused by its name and without its password',
  (name) => {
    const noDatabase = `${name} names no database: end it with /<database>`
    expect(faultsOf({ [name]: 'mysql://root@127.0.0.1:1' })).toEqual([noDatabase])
    expect(faultsOf({ [name]: 'mysql://root@127.0.0.1:1/' })).toEqual([noDatabase])
    const undecodable = { [name]: 'mysql://root:100%@127.0.0.1:1/lis', NODE_ENV: 'production' }
    expect(faultsOf(undecodable)).toContain(`${name} has a % that begins no code: write %25`)
    expect(faultsOf(undecodable).join()).not.toContain('100%')
    expect(faultsOf({ [name]: 'mysql://root:100%25@127.0.0.1:1/lis' })).toEqual([])
  },
)

test.each(['SMTP_URL', 'SMS_GATEWAY_URL', 'MESSAGE_GATEWAY_URL'])(
  '%s that can not be decoded is refused as well',
  (name) => {
    const scheme = name === 'SMTP_URL' ? 'smtp' : 'https'
    expect(faultsOf({ [name]: `${scheme}://user:50%off@gateway.internal/send` })).toEqual([
      `${name} has a % that begins no code: write %25`,
    ])
    expect(faultsOf({ [name]: `${scheme}://user:50%25off@gateway.internal/send` })).toEqual([])
  },
)

test.each(['DELIVERY_ALLOW_CIDRS', 'DELIVERY_DENY_CIDRS'])('%s that is no list of ranges is refused', (name) => {
  expect(faultsOf({ [name]: '10.0.0.0/8, fd00::/8,' })).toEqual([])
  for (const cidr of ['10.0.0.0/33', '10.0.0.1', 'lab.internal']) {
    expect(faultsOf({ [name]: `8.8.8.0/24,${cidr}` })).toEqual([
      `${name}: "${cidr}" is no range such as 10.0.0.0/8 or fd00::/8`,
    ])
  }
})

test('TLS to the database that is not understood is refused, and nothing that has to do with it is passed over', () => {
  const of = (end: string, host = 'db.internal') => faultsOf({ MYSQL_URL: `mysql://lis:secret@${host}/lis${end}` })
  const caFile = new URL('support/tls.ts', import.meta.url).pathname
  expect(of('?ssl-mode=VERIFY_IDENTITY')).toEqual([])
  expect(of('?ssl-mode=disabled&charset=utf8mb4')).toEqual([])
  expect(of('?ssl-mode=PREFERRED')).toEqual([
    'MYSQL_URL: ssl-mode must be one of DISABLED, REQUIRED, VERIFY_CA, VERIFY_IDENTITY',
  ])
  for (const key of ['ssl', 'useSSL', 'sslmode', 'tls', 'require_secure_transport']) {
    expect(of(`?${key}=true`)).toEqual([
      `MYSQL_URL has ${key}, which is not known: write ssl-mode and, if need be, ssl-ca`,
    ])
  }
  for (const [end, host] of [
    ['', '10.0.0.7'],
    ['', '[fd00::7]'],
    ['&socketPath=/run/mysqld.sock', 'localhost'],
  ] as const) {
    expect(of(`?ssl-mode=VERIFY_IDENTITY${end}`, host)).toEqual([
      "MYSQL_URL: VERIFY_IDENTITY needs the server's name instead of its address; VERIFY_CA does without",
    ])
  }
  expect(of('?ssl-ca=/nowhere/ca.pem')).toEqual(['MYSQL_URL: ssl-ca: there is no file /nowhere/ca.pem'])
  expect(of(`?ssl-ca=${encodeURIComponent(caFile)}`)).toEqual([
    `MYSQL_URL: ssl-ca: ${caFile} has no certificate: name a PEM file (-----BEGIN CERTIFICATE-----)`,
  ])
})

test('an .env file is read as it is written on any machine, and one that can not be read is said', () => {
  const file = join(folder, 'env')
  writeFileSync(file, '\uFEFFPORT=38999\r\nDATA_DIR="/a b"\r\n# none\r\nexport HOST=::1 # here\n')
  expect(readEnvFile(file)).toEqual({ values: { PORT: '38999', DATA_DIR: '/a b', HOST: '::1' }, faults: [] })
  expect(readEnvFile(join(folder, 'no-env'))).toEqual({ values: {}, faults: [] })
  expect(readEnvFile(folder).faults).toEqual([`${folder} can't be read (EISDIR): let this user read it, or remove it`])
})

test('an SMTP_URL without a host is refused, and one with all that it can have is not', () => {
  for (const url of ['smtp://', 'smtp://:25', 'smtps://user:secret@', 'smtp://?x=1'])
    expect(faultsOf({ SMTP_URL: url }).join()).toMatch(/^SMTP_URL (names no host|must be a URL that begins with)/)
  for (const url of [
    'smtp://mail',
    'smtps://user:secret@mail.internal:465',
    'smtp://[::1]:25',
    'smtps://u%40x:p@10.0.0.1',
  ])
    expect(faultsOf({ SMTP_URL: url })).toEqual([])
})

test('PUBLIC_BASE_URL may have a path, and no query or fragment', () => {
  const read = (url: string) => readConfig({ ...BASE, PUBLIC_BASE_URL: url }).publicBaseUrl
  expect(read('https://lis.example.com/x/')).toBe('https://lis.example.com/x')
  for (const end of ['?y=1', '#z', '?y=1#z', '?', '#/']) {
    expect(faultsOf({ PUBLIC_BASE_URL: `https://lis.example.com/x${end}` })).toEqual([
      'PUBLIC_BASE_URL must have no ? and no #: paths are put behind it',
    ])
  }
})

describe('two ports of one address', () => {
  const SENTENCE = (one: string, other: string) =>
    `${one} and ${other} are both 18530: set one to another (0 takes a free one)`

  test('are refused where both are set', () => {
    const [PORT, DAEMON_PORT, METRICS_PORT] = ['18530', '18530', '18530']
    expect(faultsOf({ PORT, DAEMON_PORT })).toEqual([SENTENCE('PORT', 'DAEMON_PORT')])
    expect(faultsOf({ PORT, METRICS_PORT, HOST: '0.0.0.0' })).toEqual([SENTENCE('PORT', 'METRICS_PORT')])
    expect(faultsOf({ DAEMON_PORT, OPERATOR_PORT: '18530', METRICS_PORT })).toHaveLength(3)
    expect(faultsOf({ PORT: '0', DAEMON_PORT: '0', OPERATOR_PORT: '0' })).toEqual([])
    expect(faultsOf({ PORT, DAEMON_PORT, DAEMON_HOST: '127.0.0.2' })).toEqual([])
  })

  test('are refused before everything is started on one machine, set or not', async () => {
    const read = (env: Record<string, string>) => readConfig({ ...BASE, ...env })
    await expect(refuseTakenPorts(read({ PORT: '18529', METRICS_PORT: '18530' }))).rejects.toThrow(
      SENTENCE('DAEMON_PORT', 'METRICS_PORT'),
    )
  })
})

test.each(['abc', '70000', '-1'])('RECEIVER_PORT=%s is refused as the other ports are', (port) => {
  expect(faultsOf({ RECEIVER_PORT: port })).toEqual([
    `RECEIVER_PORT must be a whole number from 0 to 65535, it is "${port}"`,
  ])
})

describe('names that are nearly those of settings', () => {
  const misspelt = (env: Record<string, string>) => readConfig({ ...BASE, ...env }).misspelt

  test.each([
    ['DELIVERY_MAX_INFLIGHT', 'DELIVERY_MAX_IN_FLIGHT'],
    ['delivery_allow_cidrs', 'DELIVERY_ALLOW_CIDRS'],
    ['DELIVERY_ALLOW_CIDR', 'DELIVERY_ALLOW_CIDRS'],
    ['LOG_RETENTOIN_DAYS', 'LOG_RETENTION_DAYS'],
    ['SMTP_URI', 'SMTP_URL'],
    ['LOG-LEVEL', 'LOG_LEVEL'],
  ])('%s is said to be meant for %s', (name, meant) => {
    expect(misspelt({ [name]: '1' })).toEqual([`${name} is no setting: ${meant} may be meant`])
  })

  test.each([
    'HOSTNAME',
    'PORTS',
    'MYSQL_HOME',
    'HEALTH_PORT',
    'OPERATOR_KEY',
    'OTEL_METRICS_EXPORTER',
    'OTEL_BLRP_SCHEDULE_DELAY',
    'PATH',
  ])('nothing is said of %s, which is somebody else’s', (name) => {
    expect(misspelt({ [name]: '1' })).toEqual([])
  })

  test('nor of a setting, or of what a test runner has in its environment', () => {
    expect(misspelt({ LOG_LEVEL: 'warn', MOCK_CA_FILE: '', REUSE_PORT: 'true' })).toEqual([])
    expect(readConfig({ ...process.env, ...BASE }).misspelt).toEqual([])
  })
})
