/**
 * Finds the database server's program on this machine, or installs it where that is allowed without asking.
 */
import { spawn, spawnSync } from 'node:child_process'
import { accessSync, constants, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs' // prettier-ignore
import { delimiter, join } from 'node:path'
import { serverFault } from '../db/migrate.ts'
import { StartFault } from './processes.ts'

export interface ServerProgram {
  /** Absolute. */
  path: string
  isMariaDb: boolean
  /** As the program says it. */
  version: string
  /** The program that makes MariaDB's folder; MySQL needs none. */
  installDb: string | undefined
  /** Set for one that is unpacked under the data folder: where its own files and libraries are. */
  unpacked?: { baseDir: string; env: NodeJS.ProcessEnv }
}

const SERVER_PACKAGES = ['mariadb-server-core', 'mariadb-client-core']
const SYSTEM_FOLDERS = [
  '/usr/sbin',
  '/usr/bin',
  '/usr/local/sbin',
  '/usr/local/bin',
  '/usr/libexec',
  '/opt/homebrew/bin',
]

/**
 * The machine's own server, or one that an earlier start unpacked; else root installs Debian's packages, and everybody else
 * unpacks them under the data folder.
 * @throws StartFault with what to install by hand
 */
export async function findOrInstallServer(dataDir: string, onProgress: (line: string) => void): Promise<ServerProgram> {
  const found = findServer() ?? findUnpackedServer(dataDir)
  if (found) return found
  if (!existsSync('/usr/bin/apt-get')) {
    throw new StartFault(installAdvice(process.platform, readText('/etc/os-release')))
  }
  return process.getuid?.() === 0 ? installServer(onProgress) : unpackServer(dataDir, onProgress)
}

/** Looks in PATH first, then where distributions put servers. */
export function findProgram(name: string): string | undefined {
  const folders = [...(process.env.PATH ?? '').split(delimiter).filter(Boolean), ...SYSTEM_FOLDERS]
  return folders.map((folder) => join(folder, name)).find(isExecutable)
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}

function findServer(): ServerProgram | undefined {
  const path = findProgram('mariadbd') ?? findProgram('mysqld')
  if (!path) return undefined
  const version = versionOf(path, process.env)
  const fault = serverFault(version)
  if (fault) throw new StartFault(`${path}: ${fault}; install one, or set MYSQL_URL`)
  const installDb = findProgram('mariadb-install-db') ?? findProgram('mysql_install_db')
  return { path, isMariaDb: /mariadb/i.test(version), version, installDb }
}

function versionOf(path: string, env: NodeJS.ProcessEnv): string {
  const { stdout } = spawnSync(path, ['--no-defaults', '--version'], { encoding: 'utf8', env })
  return stdout?.match(/Ver (\S+)/)?.[1] ?? ''
}

/** One line for machines where nothing is installed without asking. Exported for its test. */
export function installAdvice(platform: string, osRelease: string): string {
  const ids = [...osRelease.matchAll(/^ID(?:_LIKE)?="?([^"\n]*)"?$/gm)].flatMap(([, text]) => text!.split(' '))
  const commands: [string, string][] = [
    ['fedora', 'sudo dnf install -y mariadb-server'],
    ['rhel', 'sudo dnf install -y mariadb-server'],
    ['suse', 'sudo zypper install -y mariadb'],
    ['arch', 'sudo pacman -S mariadb'],
    ['alpine', 'sudo apk add mariadb'],
  ]
  const command =
    platform === 'darwin'
      ? 'brew install mariadb'
      : commands.find(([id]) => ids.some((known) => known.startsWith(id)))?.[1]
  const install = command ? `run \`${command}\`` : 'install MariaDB 10.6 or later with its mariadbd in the PATH'
  return `no MariaDB server on this machine: ${install}, or set MYSQL_URL`
}

async function installServer(onProgress: (line: string) => void): Promise<ServerProgram> {
  onProgress('installing MariaDB (Debian packages): reading the package lists …')
  // One list of another vendor may be unreachable while Debian's own are fine: only the install decides.
  const update = await run('apt-get', [...APT_OPTIONS, 'update'])
  const packages = SERVER_PACKAGES.map((name) => availablePackage(name))
  onProgress(`installing MariaDB (Debian packages): ${packages.join(', ')} …`)
  const install = await run('apt-get', [...APT_OPTIONS, 'install', '-y', '--no-install-recommends', ...packages])
  if (!install.ok) throw aptFault('install', update, install)
  const found = findServer()
  if (!found) throw new StartFault('apt-get installed MariaDB, but there is no mariadbd: set MYSQL_URL instead')
  return found
}

/**
 * Downloads and unpacks the packages that the machine lacks; nothing outside the data folder is written. Made aside and
 * renamed: a kill half-way leaves no folder that looks whole, and the next start throws the half away.
 */
async function unpackServer(dataDir: string, onProgress: (line: string) => void): Promise<ServerProgram> {
  for (const name of readdirSync(dataDir).filter((entry) => entry.startsWith('mariadb.new-'))) {
    rmSync(join(dataDir, name), { recursive: true, force: true })
  }
  const draft = mkdtempSync(join(dataDir, 'mariadb.new-'))
  try {
    const apt = join(draft, 'apt')
    for (const folder of ['lists/partial', 'cache/archives/partial']) mkdirSync(join(apt, folder), { recursive: true })
    const options = [
      ...['-o', `Dir::State::lists=${apt}/lists`, '-o', `Dir::Cache=${apt}/cache`],
      // Nothing of the system is written, so its locks, which belong to root, are not needed.
      ...['-o', 'Debug::NoLocking=1'],
    ]
    onProgress('downloading MariaDB (Debian packages, no root needed): reading the package lists …')
    const update = await run('apt-get', ['-q', ...options, 'update'])
    const packages = SERVER_PACKAGES.map((name) => availablePackage(name, options))
    onProgress(`downloading MariaDB (Debian packages, no root needed): ${packages.join(', ')} …`)
    // --reinstall: a package that the system's book has may lack its program all the same.
    const download = ['install', '-y', '--download-only', '--reinstall', '--no-install-recommends', ...packages]
    const install = await run('apt-get', ['-q', ...options, ...download])
    const archives = join(apt, 'cache', 'archives')
    const files = readdirSync(archives).filter((name) => name.endsWith('.deb'))
    if (!install.ok || files.length === 0) throw aptFault('download', update, install)
    onProgress(`unpacking ${files.length} packages into ${join(dataDir, 'mariadb')} …`)
    for (const name of files) {
      const unpack = await run('dpkg-deb', ['-x', join(archives, name), draft])
      if (!unpack.ok) throw new StartFault(`${name} can't be unpacked into ${dataDir}: ${unpack.output.trim()}`)
    }
    rmSync(apt, { recursive: true, force: true })
    rmSync(join(dataDir, 'mariadb'), { recursive: true, force: true })
    renameSync(draft, join(dataDir, 'mariadb'))
  } catch (error) {
    rmSync(draft, { recursive: true, force: true })
    throw error
  }
  const found = findUnpackedServer(dataDir)
  if (!found) {
    throw new StartFault(`MariaDB was unpacked into ${dataDir}/mariadb, but it does not run there: ${BY_HAND}`)
  }
  return found
}

/** @returns undefined where there is none, or where it does not run any more (after an upgrade of the system's libraries) */
function findUnpackedServer(dataDir: string): ServerProgram | undefined {
  // Test runs have a data folder each; MARIADB_HOME tells them what the first one unpacked.
  for (const root of [process.env.MARIADB_HOME, join(dataDir, 'mariadb')].filter((folder) => folder !== undefined)) {
    const path = join(root, 'usr', 'sbin', 'mariadbd')
    if (!existsSync(path)) continue
    const env = { ...process.env, LD_LIBRARY_PATH: librariesIn(root).join(':') }
    const version = versionOf(path, env)
    if (!version || serverFault(version)) continue
    const installDb = join(root, 'usr', 'bin', 'mariadb-install-db')
    return { path, isMariaDb: true, version, installDb, unpacked: { baseDir: join(root, 'usr'), env } }
  }
  return undefined
}

/** `usr/lib/<architecture>` and `lib/<architecture>`. */
export function librariesIn(root: string): string[] {
  return [join(root, 'usr', 'lib'), join(root, 'lib')].filter(existsSync).flatMap((folder) =>
    readdirSync(folder)
      .filter((name) => name.includes('-linux-'))
      .map((name) => join(folder, name)),
  )
}

const APT_OPTIONS = ['-q', '-o', 'DPkg::Lock::Timeout=120']
const BY_HAND = `run \`sudo apt-get install -y --no-install-recommends ${SERVER_PACKAGES.join(' ')}\`, or set MYSQL_URL`

const STOP_SIGNALS = ['SIGINT', 'SIGTERM'] as const

interface Outcome {
  ok: boolean
  output: string
}

function aptFault(what: 'install' | 'download', update: Outcome, install: Outcome): StartFault {
  const output = `${update.ok ? '' : update.output}${install.output}`.trim().split('\n').slice(-5).join('\n')
  return new StartFault(`apt-get could not ${what} MariaDB: mend this and start again, or ${BY_HAND}\n${output}`)
}

function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}

/** Ubuntu 22.04 has the version in the package's name. */
export function availablePackage(name: string, options: string[] = []): string {
  const search = spawnSync('apt-cache', [...options, 'search', '--names-only', `^${name}(-[0-9.]+)?$`], {
    encoding: 'utf8',
  })
  const names = (search.stdout ?? '').split('\n').flatMap((line) => line.split(' ')[0] || [])
  return names.includes(name) ? name : (names.sort().at(-1) ?? name)
}

/** @throws StartFault once the program has ended, where this process was asked to end meanwhile: nothing further is to be begun */
export async function run(program: string, args: string[], cwd?: string): Promise<Outcome> {
  const child = spawn(program, args, {
    cwd,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
  })
  let isInterrupted = false
  const interrupt = () => {
    isInterrupted = true
  }
  for (const signal of STOP_SIGNALS) process.on(signal, interrupt)
  let output = ''
  child.stdout.on('data', (chunk) => (output += chunk))
  child.stderr.on('data', (chunk) => (output += chunk))
  const outcome = await new Promise<Outcome>((resolve) => {
    child.on('error', (error) => resolve({ ok: false, output: error.message }))
    child.on('close', (code) => resolve({ ok: code === 0, output }))
  })
  for (const signal of STOP_SIGNALS) process.off(signal, interrupt)
  if (isInterrupted) throw new StartFault(`interrupted while ${program} ran`)
  return outcome
}
