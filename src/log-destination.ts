/**
 * Where log lines go: a file that may be full, a terminal that may be gone, a pipe that nobody may read. A service is never held up
 * by its log and never ends by it: what can't be written is dropped, and counted.
 */
import { fstatSync, write, writeSync } from 'node:fs'
import { Socket } from 'node:net'

/** Lines beyond that are dropped while others wait. */
const MOST_WAITING_CHARACTERS = 8 * 1024 * 1024
/** So long nothing is tried after a fault. */
const PAUSE_MS = 1000
/** The last lines of a process are tried so often, so far apart. */
const LAST_TRIES = 20
const TRY_EACH_MS = 10

const BUSY = ['EAGAIN', 'EBUSY', 'EINTR']
const isBusy = (error: unknown) => BUSY.includes((error as NodeJS.ErrnoException).code ?? '')

export interface LogDestination {
  /** @param line with its end */
  write(line: string): void
}

type Done = (error?: Error | null) => void

/**
 * @param fd nobody else in this process waits to write to it
 * @param onRecovered told when lines can be written again, with the number of those that could not
 */
export function createLogDestination(fd: number, onRecovered: (dropped: number) => void): LogDestination {
  const writeAll = isReadBySomebody(fd) ? pipeWriter(fd) : fileWriter(fd)
  let waiting: string[] = []
  let characters = 0
  let dropped = 0
  let isWriting = false

  const flush = () => {
    isWriting = waiting.length > 0
    if (!isWriting) return
    const lines = waiting
    waiting = []
    characters = 0
    writeAll(lines.join(''), (error) => {
      if (error) {
        dropped += lines.length
        setTimeout(flush, PAUSE_MS).unref()
        return
      }
      const lost = dropped
      dropped = 0
      if (lost > 0) onRecovered(lost)
      flush()
    })
  }
  process.once('exit', () => writeLast(fd, waiting.join('')))
  return {
    write(line) {
      if (characters + line.length > MOST_WAITING_CHARACTERS) {
        dropped += 1
        return
      }
      waiting.push(line)
      characters += line.length
      if (!isWriting) flush()
    },
  }
}

/** A pipe or a socket, which may be full for as long as its reader likes. */
function isReadBySomebody(fd: number): boolean {
  try {
    const stat = fstatSync(fd)
    return stat.isFIFO() || stat.isSocket()
  } catch {
    // Closed: each write says so.
    return false
  }
}

/** Never blocks: a thread that waits in a write would keep the process from ending. */
function pipeWriter(fd: number): (text: string, done: Done) => void {
  const socket = new Socket({ fd, readable: false, writable: true })
  socket.unref()
  // Each write is told.
  socket.on('error', () => {})
  return (text, done) => void socket.write(text, done)
}

function fileWriter(fd: number): (text: string, done: Done) => void {
  return (text, done) => {
    const bytes = Buffer.from(text)
    const writeFrom = (at: number) => {
      write(fd, bytes, at, bytes.length - at, null, (error, written) => {
        if (error && isBusy(error)) setTimeout(() => writeFrom(at), TRY_EACH_MS).unref()
        else if (error || at + written === bytes.length) done(error)
        else writeFrom(at + written)
      })
    }
    writeFrom(0)
  }
}

/** When nothing comes back any more: what can't be written soon stays unwritten. */
function writeLast(fd: number, text: string): void {
  let rest: Uint8Array = Buffer.from(text)
  for (let tries = 0; rest.length > 0 && tries < LAST_TRIES;) {
    try {
      rest = rest.subarray(writeSync(fd, rest))
    } catch (error) {
      if (!isBusy(error)) return
      tries += 1
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, TRY_EACH_MS)
    }
  }
}
