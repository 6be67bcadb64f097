/**
 * The API or the daemon as a child process: starting it, knowing when it serves, stopping it.
 */
import { appendFileSync, closeSync, fstatSync, openSync, readSync, renameSync, statSync } from 'node:fs'
import { get } from 'node:http'
import { createInterface } from 'node:readline'
import { monotonicMs } from '../src/clock.ts'
import { spawnTied, StartFault } from './processes.ts'

export interface Service {
  /** For people: "the API", "the daemon". */
  name: string
  pid: number
  /** Resolves when the process is gone, with how. */
  ended: Promise<string>
  /** @returns the port it listens on. @throws StartFault when it ends first */
  listening(): Promise<number>
  /** @throws StartFault when it ends first or is not ready in time */
  ready(baseUrl: string): Promise<void>
  /** A fault that shows the end of its log. */
  fault(what: string): StartFault
  /** SIGTERM, and SIGKILL after 20 s. */
  stop(): Promise<void>
}

/**
 * V8 looks through a heap and compiles in the background, by three threads and more: on two cores everybody else waited for these
 * some 50 ms, every few seconds.
 */
const ONE_HELPER = '--v8-pool-size=1'

/**
 * Objects of a kind that once outlived a few looks through the young ones, as those of 64 requests at once do, would be old ones from
 * the start from then on, and what they know of would live until the whole heap is looked through: 12 KB of each lead instead of 3,
 * and twice as much of a delivery.
 */
const YOUNG_FIRST = '--no-allocation-site-pretenuring'

/** Otherwise this signal opens a debugger to everybody on the machine. */
const NO_DEBUGGER = '--disable-sigusr1'

/**
 * A name out of a request, an answer or a row reaches no prototype then, in whatever library it is taken for a field's name. What needs
 * the accessor is one kind of error of passport's, which is made only where it is asked for.
 */
const NO_PROTO = '--disable-proto=delete'

/**
 * A delivery goes through many small functions: where the compiler may put twice as much of them into one, it takes a daemon 4 % less.
 * The API has no gain from that.
 */
const TWICE_INLINED = ['--max-inlined-bytecode-size=920', '--max-inlined-bytecode-size-cumulative=1840']

/**
 * What bounds the memory of a service, given to Node and to the C library. Otherwise young objects get up to 128 MB under load,
 * and each of Node's threads has a heap for what it once needed. For old ones see `src/heap-growth.ts`.
 */
const NODE_ARGUMENTS = {
  // A call lives for some ten milliseconds. Twice the room would spare a twentieth of the API's time, and take 16 MB.
  'src/server.ts': [
    '--max-semi-space-size=8',
    '--heap-growing-percent=60',
    '--no-parallel-scavenge',
    YOUNG_FIRST,
    ONE_HELPER,
    NO_DEBUGGER,
    NO_PROTO,
  ],
  // What it reads ahead lives for some milliseconds: in less room it would be moved to the old objects, a tenth of its time. In
  // twice the room (V8 takes the next power of two) it is no faster, and 25 MB larger. Several threads that look through so little
  // wait for each other more than they help: another tenth.
  'daemon/main.ts': [
    '--max-semi-space-size=16',
    '--no-parallel-scavenge',
    YOUNG_FIRST,
    ONE_HELPER,
    NO_DEBUGGER,
    NO_PROTO,
    ...TWICE_INLINED,
  ],
  'scripts/migrate.ts': [NO_PROTO],
}

export const SERVICE_ENV = { MALLOC_ARENA_MAX: '2' }

/** @param script the path of a service's TypeScript */
export function nodeArgumentsOf(script: string): string[] {
  return Object.entries(NODE_ARGUMENTS).find(([name]) => script.endsWith(name))?.[1] ?? []
}

const STOP_TIMEOUT_MS = 20_000
const READY_TIMEOUT_MS = 60_000
const SHOWN_LINES = 20
/** Its predecessor is kept as `.1`; more is for a machine that has a log collector. */
const LOG_MAX_BYTES = 50_000_000
const SHOWN_BYTES = 65_536

/**
 * @param script absolute path of its TypeScript
 * @param logFile gets its log lines, appended
 */
export function startService(name: string, script: string, env: NodeJS.ProcessEnv, logFile: string): Service {
  rotate(logFile)
  const log = openSync(logFile, 'a')
  const logStart = sizeOf(logFile)
  const child = spawnTied(process.execPath, [...nodeArgumentsOf(script), script], {
    env: { ...SERVICE_ENV, ...env },
    stdio: ['ignore', 'pipe', log],
  })
  closeSync(log)

  let how: string | undefined
  const ended = new Promise<string>((resolve) => {
    child.on('error', (error) => resolve(error.message))
    child.on('exit', (code, signal) => resolve(signal ?? `code ${code}`))
  })
  void ended.then((text) => (how = text))
  const port = new Promise<number>((resolve) => {
    createInterface({ input: child.stdout! }).on('line', (line) => {
      const announced = /^listening (\d+)$/.exec(line)
      if (announced) resolve(Number(announced[1]))
      else appendFileSync(logFile, `${line}\n`)
    })
  })

  const fault = (what: string) => {
    const lines = endOf(logFile, logStart).trimEnd().split('\n').slice(-SHOWN_LINES)
    return new StartFault(`${name} ${what}; the end of ${logFile}:\n${lines.join('\n')}`)
  }
  const failed = (): Promise<never> =>
    ended.then((text) => {
      throw fault(`ended (${text}) before it served`)
    })

  return {
    name,
    pid: child.pid ?? 0,
    ended,
    fault,
    listening: () => Promise.race([port, failed()]),
    ready: async (baseUrl) => {
      const deadline = monotonicMs() + READY_TIMEOUT_MS
      while (!(await answersOk(`${baseUrl}/readyz`))) {
        if (how !== undefined) throw fault(`ended (${how}) before it served`)
        if (monotonicMs() > deadline) throw fault(`is not ready after ${READY_TIMEOUT_MS / 1000} s`)
        await new Promise((resolve) => setTimeout(resolve, 30))
      }
    },
    stop: async () => {
      child.kill('SIGTERM')
      const timer = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT_MS)
      await ended
      clearTimeout(timer)
    },
  }
}

/** Asked by way of an agent of its own: `fetch` would ask a proxy that the environment names. */
function answersOk(url: string): Promise<boolean> {
  return new Promise((resolve) => {
    const request = get(url, { agent: false, timeout: 2000 }, (response) => {
      response.resume().on('end', () => resolve(response.statusCode === 200))
      response.on('close', () => resolve(false))
    })
    request.on('timeout', () => request.destroy())
    request.on('error', () => resolve(false))
  })
}

/** @returns no more than the last part of what was written since `from`; nothing where the file is gone. Never throws */
function endOf(file: string, from: number): string {
  try {
    const fd = openSync(file, 'r')
    try {
      const size = fstatSync(fd).size
      const at = Math.max(from, size - SHOWN_BYTES)
      const bytes = Buffer.alloc(Math.max(0, size - at))
      return bytes.subarray(0, readSync(fd, bytes, 0, bytes.length, at)).toString('utf8')
    } finally {
      closeSync(fd)
    }
  } catch {
    return ''
  }
}

function sizeOf(file: string): number {
  try {
    return statSync(file).size
  } catch {
    return 0
  }
}

function rotate(file: string): void {
  if (sizeOf(file) > LOG_MAX_BYTES) renameSync(file, `${file}.1`)
}
