/**
 * A port that listens and never accepts: the line of connections that wait for it is full, and the kernel drops each further SYN
 * without a word. Linux.
 */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'

const ROLE = 'full backlog'
/** A connection to this machine that is not there by then never will be. */
const CONNECTED_WITHIN_MS = 300
const LOOK_EACH_MS = 100
const SYN_SENT = '02'

export interface FullBacklog {
  port: number
  /** Connections that are being tried now. */
  readonly trying: number
  /** The longest that one was tried, in milliseconds, as seen ten times a second. */
  readonly longestTriedMs: number
  close(): void
}

if (!isMainThread && workerData === ROLE) {
  // The line holds one more than it is told to. Whoever does not come back to its event loop accepts nothing.
  const server = createServer().listen({ port: 0, host: '127.0.0.1', backlog: 1 }, () => {
    parentPort!.postMessage((server.address() as AddressInfo).port)
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)
  })
}

export async function startFullBacklog(): Promise<FullBacklog> {
  const worker = new Worker(import.meta.filename, { workerData: ROLE })
  const [port] = (await once(worker, 'message')) as [number]
  const waiting = await fill(port)
  const sinceMs = new Map<string, number>()
  let longestTriedMs = 0
  const look = () => {
    const tried = tryingTo(port)
    const nowMs = performance.now()
    for (const from of sinceMs.keys()) if (!tried.includes(from)) sinceMs.delete(from)
    for (const from of tried) {
      if (!sinceMs.has(from)) sinceMs.set(from, nowMs)
      longestTriedMs = Math.max(longestTriedMs, nowMs - sinceMs.get(from)!)
    }
  }
  const timer = setInterval(look, LOOK_EACH_MS)
  return {
    port,
    get trying() {
      return tryingTo(port).length
    },
    get longestTriedMs() {
      return longestTriedMs
    },
    close() {
      clearInterval(timer)
      for (const socket of waiting) socket.destroy()
      void worker.terminate()
    },
  }
}

/** @returns those that wait in the line */
async function fill(port: number): Promise<Socket[]> {
  const waiting: Socket[] = []
  for (;;) {
    const socket = connect(port, '127.0.0.1').on('error', () => {})
    const isIn = await Promise.race([once(socket, 'connect').then(() => true), sleep(CONNECTED_WITHIN_MS, false)])
    if (!isIn) {
      socket.destroy()
      return waiting
    }
    waiting.push(socket)
  }
}

/** The local ends of connections to that port that the kernel still tries. */
function tryingTo(port: number): string[] {
  const remote = `0100007F:${port.toString(16).toUpperCase().padStart(4, '0')}`
  return readFileSync('/proc/net/tcp', 'utf8')
    .split('\n')
    .map((line) => line.trim().split(/\s+/))
    .filter((fields) => fields[2] === remote && fields[3] === SYN_SENT)
    .map((fields) => fields[1]!)
}
