/**
 * A private MariaDB under a data folder: nothing to configure, no port, gone with the one who started it.
 */
import type { ChildProcess } from 'node:child_process'
import {
  chmodSync, closeSync, existsSync, mkdirSync, mkdtempSync, openSync, readdirSync, readFileSync, renameSync, rmdirSync, rmSync, statfsSync, statSync,
  writeFileSync,
} from 'node:fs' // prettier-ignore
import { basename, dirname, join, resolve } from 'node:path'
import { createConnection } from 'mysql2/promise'
import { isAccessDenied } from '../db/connection-fault.ts'
import { driverOptions, isConnectionFault } from '../db/connection.ts'
import { monotonicMs } from '../src/clock.ts'
import { privateMysqlUrl } from '../src/config.ts'
import { findOrInstallServer, type ServerProgram } from './database-server.ts'
import { endProcess, findByArgument, lastLines, spawnTied, StartFault } from './processes.ts'

export interface LocalDatabaseOptions {
  dataDir: string
  /** MiB. Small for tests: it is written out in full when the folder is made. */
  redoLogMb?: number
  /** MiB. */
  bufferPoolMb?: number
  /** Keeps a binary log, by which a backup is carried on to any later point. */
  binlog?: boolean
  /** Ends a server that outlived its starter. Only for a caller who knows that the starter is dead; others are refused. */
  endSurvivor?: boolean
  /** Put behind ours, which they override. */
  serverArgs?: string[]
  onProgress?: (line: string) => void
}

export interface LocalDatabase {
  /** Names the database `lis`, which `migrate` creates. */
  mysqlUrl: string
  pid: number
  /** Resolves when the server has ended, by `stop` or by itself, with how. */
  ended: Promise<string>
  /** SIGTERM, and SIGKILL after 20 s; nothing of the server runs when it returns. */
  stop(): Promise<void>
}

/** Recovery after a kill reads the redo log again: seconds, with a big one more. */
const START_TIMEOUT_MS = 120_000
const STOP_TIMEOUT_MS = 20_000
/** Free space without which a server does not get through its start. */
const SPARE_MB = 16
/** What MariaDB and MySQL make at first, without the redo log. */
const NEW_FOLDER_MB = 150
/** The same in files: its socket, its log, its temporary tables; and its system's tables, the service's and theirs of MySQL. */
const SPARE_FILES = 50
const NEW_FOLDER_FILES = 400

/**
 * Starts the server on `dataDir/mysql`, which is made at the first start.
 * @throws StartFault when another one serves this folder, no server can be had, or it does not start
 */
export async function startLocalDatabase(options: LocalDatabaseOptions): Promise<LocalDatabase> {
  const { redoLogMb = 256, bufferPoolMb = 256, binlog = false, endSurvivor = false, onProgress = () => {} } = options
  const dataDir = resolve(options.dataDir)
  const folder = join(dataDir, 'mysql')
  const logFile = join(dataDir, 'logs', 'mysql.log')
  const mysqlUrl = privateMysqlUrl(dataDir)
  const socketPath = new URL(mysqlUrl).searchParams.get('socketPath')!

  await settleRunningServers(folder, endSurvivor, onProgress)
  mkdirSync(dirname(logFile), { recursive: true, mode: 0o700 })
  const server = await findOrInstallServer(dataDir, onProgress)
  refuseNewerData(versionFile(dataDir), server)
  makeSocketFolder(socketPath, dataDir)
  removeDrafts(folder)
  makeTemporaryFolder(dataDir)
  if (existsSync(folder)) refuseFullDisk(dataDir, SPARE_MB, SPARE_FILES)
  else refuseFullDisk(dataDir, SPARE_MB + NEW_FOLDER_MB + redoLogMb, SPARE_FILES + NEW_FOLDER_FILES)
  if (!existsSync(folder)) {
    onProgress('making the database folder …')
    await initialise(server, folder, logFile, redoLogMb)
  }
  // No server runs here (seen above), so these are left from one that was killed.
  for (const stale of [socketPath, `${socketPath}.lock`, pidFile(folder)]) rmSync(stale, { force: true })

  const log = openSync(logFile, 'a')
  const child = spawnTied(
    server.path,
    [
      ...serverArguments(server, folder, socketPath, { redoLogMb, bufferPoolMb, binlog }),
      ...(options.serverArgs ?? []),
    ],
    {
      stdio: ['ignore', log, log],
      env: environmentOf(server, dataDir),
    },
  )
  closeSync(log)
  const ended = new Promise<string>((resolveEnded) => {
    child.on('error', (error) => resolveEnded(error.message))
    child.on('exit', (code, signal) => resolveEnded(signal ?? `code ${code}`))
  })
  const stop = async () => {
    child.kill('SIGTERM')
    const timer = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT_MS)
    await ended
    clearTimeout(timer)
    removeSocketFolder(socketPath, dataDir)
  }
  try {
    await untilItAnswers(mysqlUrl, child, ended, logFile, onProgress)
    // The root user has no password: only the owner of the data folder may reach it.
    chmodSync(socketPath, 0o600)
    const draft = `${versionFile(dataDir)}.${process.pid}`
    writeFileSync(draft, `${server.version}\n`)
    renameSync(draft, versionFile(dataDir))
  } catch (error) {
    await stop()
    throw error
  }
  return { mysqlUrl, pid: child.pid!, ended, stop }
}

/** The version that last served the folder. */
function versionFile(dataDir: string): string {
  return join(dataDir, 'mysql.version')
}

/** A server that is older than its data, or of the other make, would refuse it in riddles or, worse, half accept it. */
function refuseNewerData(file: string, server: ServerProgram): void {
  if (!existsSync(file)) return
  const last = readFileSync(file, 'utf8').trim()
  // Cut off where the disk was full, or the power gone: the server itself has to say.
  if (!/^\d+\.\d+/.test(last)) return
  const [usedBy, serves] = [last, server.version].map((version) => ({
    isMariaDb: /mariadb/i.test(version),
    number: Number(
      /^(\d+)\.(\d+)/
        .exec(version)
        ?.slice(1)
        .map((part) => part.padStart(3, '0'))
        .join('') ?? 0,
    ),
  }))
  if (usedBy!.isMariaDb === serves!.isMariaDb && usedBy!.number <= serves!.number) return
  throw new StartFault(
    `the private database was last used by the server version ${last}, and this machine has ${server.version}: install that one again, or set another DATA_DIR`,
  )
}

/** @throws StartFault when less is free, before a server fails half-way with many words */
function refuseFullDisk(dataDir: string, neededMb: number, neededFiles: number): void {
  const { bavail, bsize, files, ffree } = statfsSync(dataDir)
  const freeMb = Math.floor((bavail * bsize) / 1024 / 1024)
  // Some file systems have no such limit, and say 0.
  if (files > 0 && ffree < neededFiles) {
    throw new StartFault(
      `the disk that holds ${dataDir} has room for ${ffree} files and the private database needs ${neededFiles}: remove some, or set another DATA_DIR`,
    )
  }
  if (freeMb >= neededMb) return
  throw new StartFault(
    `the disk that holds ${dataDir} has ${freeMb} MB left and the private database needs ${neededMb} MB: free some space, or set another DATA_DIR`,
  )
}

function pidFile(folder: string): string {
  return join(folder, 'server.pid')
}

function serverArguments(
  server: ServerProgram,
  folder: string,
  socketPath: string,
  { redoLogMb, bufferPoolMb, binlog }: { redoLogMb: number; bufferPoolMb: number; binlog: boolean },
): string[] {
  return [
    '--no-defaults', // must be the first
    ...asRoot(),
    ...(server.unpacked ? [`--basedir=${server.unpacked.baseDir}`] : []),
    `--datadir=${folder}`,
    `--socket=${socketPath}`,
    `--pid-file=${pidFile(folder)}`,
    '--skip-networking',
    '--skip-name-resolve',
    '--default-time-zone=+00:00',
    '--character-set-server=utf8mb4',
    '--collation-server=utf8mb4_bin',
    '--transaction-isolation=READ-COMMITTED',
    // An acknowledged write survives the loss of power.
    '--innodb-flush-log-at-trx-commit=1',
    `--innodb-buffer-pool-size=${bufferPoolMb}M`,
    '--max-connections=500',
    '--max-allowed-packet=64M',
    '--performance-schema=OFF',
    ...(binlog ? ['--log-bin=binlog', '--server-id=1', '--binlog-format=ROW', '--sync-binlog=1'] : []),
    ...(server.isMariaDb
      ? [`--innodb-log-file-size=${redoLogMb}M`]
      : [`--innodb-redo-log-capacity=${redoLogMb}M`, '--mysqlx=OFF', ...(binlog ? [] : ['--skip-log-bin'])]),
  ]
}

/** Where the server spills what it sorts and groups. */
function temporaryFolder(dataDir: string): string {
  return join(dataDir, 'database-tmp')
}

/** No server runs here, so what is in it is left over. */
function makeTemporaryFolder(dataDir: string): void {
  rmSync(temporaryFolder(dataDir), { recursive: true, force: true })
  mkdirSync(temporaryFolder(dataDir))
}

/**
 * A server that starts removes every temporary table that it finds in its folder for them, also those of another server that
 * is running: in /tmp, which all have by default, each would break the others' statements.
 */
function environmentOf({ unpacked }: ServerProgram, dataDir: string): NodeJS.ProcessEnv {
  return { ...(unpacked?.env ?? process.env), TMPDIR: temporaryFolder(dataDir) }
}

/** Both servers refuse to run as root unless told so. */
function asRoot(): string[] {
  return process.getuid?.() === 0 ? ['--user=root'] : []
}

/** Two servers on one folder would destroy it; the server's own lock only makes the second one wait for minutes. */
async function settleRunningServers(
  folder: string,
  endSurvivor: boolean,
  onProgress: (line: string) => void,
): Promise<void> {
  for (const running of findByArgument(`--datadir=${folder}`)) {
    if (!endSurvivor) {
      throw new StartFault(
        `a database server (process ${running.pid}) already runs on ${folder}: another \`make run\` uses this data folder; stop it, or set another DATA_DIR`,
      )
    }
    onProgress(`ending the database server that outlived the last run (process ${running.pid}) …`)
    await endProcess(running, STOP_TIMEOUT_MS)
  }
}

/** What starts that were killed, or ran out of disk, had made so far. */
function removeDrafts(folder: string): void {
  for (const name of readdirSync(dirname(folder))) {
    if (name.startsWith('mysql.new-')) rmSync(join(dirname(folder), name), { recursive: true, force: true })
  }
}

/** Made aside and renamed: a kill half-way leaves no folder that looks whole. */
async function initialise(server: ServerProgram, folder: string, logFile: string, redoLogMb: number): Promise<void> {
  // A name of its own each time: the program of a start that was killed may still be writing into the last one.
  const draft = mkdtempSync(`${folder}.new-`)
  const [program, args] = server.isMariaDb
    ? [
        server.installDb,
        [
          ...(server.unpacked ? [`--basedir=${server.unpacked.baseDir}`] : []),
          ...['--auth-root-authentication-method=normal', '--skip-test-db', `--innodb-log-file-size=${redoLogMb}M`],
        ],
      ]
    : [server.path, ['--initialize-insecure']]
  if (!program) throw new StartFault('mariadb-install-db is missing: install MariaDB as a whole, or set MYSQL_URL')
  const log = openSync(logFile, 'a')
  // By its name alone: MariaDB's script splits a path with spaces where it makes the folder its user's.
  const child = spawnTied(program, ['--no-defaults', ...asRoot(), `--datadir=./${basename(draft)}`, ...args], {
    cwd: dirname(draft),
    stdio: ['ignore', log, log],
    env: environmentOf(server, dirname(folder)),
  })
  closeSync(log)
  const code = await new Promise((done) => {
    child.on('error', (error) => done(error.message))
    child.on('exit', (exitCode, signal) => done(signal ?? exitCode))
  })
  if (code !== 0) {
    rmSync(draft, { recursive: true, force: true })
    throw notStarted(`its folder could not be made (${code})`, logFile)
  }
  renameSync(draft, folder)
}

async function untilItAnswers(
  mysqlUrl: string,
  child: ChildProcess,
  ended: Promise<string>,
  logFile: string,
  onProgress: (line: string) => void,
): Promise<void> {
  let end: string | undefined
  void ended.then((how) => (end = how))
  const startedAt = monotonicMs()
  let saidAt = startedAt
  for (;;) {
    if (end !== undefined) throw notStarted(`it ended (${end})`, logFile)
    try {
      await (await createConnection({ ...driverOptions(mysqlUrl), database: undefined })).end()
      return
    } catch (error) {
      if (!isConnectionFault(error) || isAccessDenied(error)) throw error
      const now = monotonicMs()
      if (now - startedAt > START_TIMEOUT_MS) {
        child.kill('SIGKILL')
        throw notStarted(`it did not answer in time (${(error as NodeJS.ErrnoException).code})`, logFile)
      }
      if (now - saidAt > 5000) {
        saidAt = now
        onProgress('the database is still starting (after a kill it recovers first) …')
      }
    }
    await new Promise((next) => setTimeout(next, 20))
  }
}

function notStarted(reason: string, logFile: string): StartFault {
  return new StartFault(
    `the private database does not start: ${reason}; the end of ${logFile}:\n${lastLines(logFile, 10)}`,
  )
}

/** The socket of a long data folder is elsewhere (`privateMysqlUrl`), in a folder that must be ours alone. */
function makeSocketFolder(socketPath: string, dataDir: string): void {
  const folder = dirname(socketPath)
  if (folder === dataDir) return
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  const { uid, mode } = statSync(folder)
  if (uid !== process.getuid?.() || (mode & 0o077) !== 0) {
    throw new StartFault(`${folder} belongs to somebody else: choose a shorter DATA_DIR, its socket fits there`)
  }
}

function removeSocketFolder(socketPath: string, dataDir: string): void {
  if (dirname(socketPath) === dataDir) return
  rmSync(socketPath, { force: true })
  try {
    rmdirSync(dirname(socketPath))
  } catch {
    // Not empty, or gone: nothing of ours is in it.
  }
}
