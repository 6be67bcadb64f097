/**
 * How far a process lets its heap grow before it looks through all of it. Looking seldom is what a fast path wants, a fifth of the
 * daemon's time else; looking often is what bounds the memory, and costs next to nothing while there is little to do. So it is
 * seldom while the process is busy and small.
 */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { monotonicMs } from './clock.ts'

const LOOK_EACH_MS = 500
/** A process counts as busy from this share of a core on. */
const BUSY_SHARE = 0.3
/** From this share of the limit on it is small again: one that stays near it must not change each time. */
const SMALL_AGAIN = 0.8
const MB = 1024 * 1024

export interface HeapGrowthOptions {
  /** From this resident size on, in MB, the process counts as large; by default none does. */
  largeFromMb?: number
  /** What is in use may grow by so much, in percent, before it is looked through. 0: as V8 sees fit, up to four times. */
  growth: {
    busy: number
    /** Of a process that has little to do, or is large. */
    tight: number
  }
  residentBytes?: () => number
  /** CPU time of the process so far, in milliseconds. */
  cpuMs?: () => number
  /** A clock that never jumps. */
  nowMs?: () => number
  /** @param percent as `growth` */
  setGrowth?: (percent: number) => void
  /** Looks through all of the heap now. */
  collect?: () => void
}

/**
 * Looks at the resident size and at the CPU time now and then, for as long as the process lives.
 * @returns what ends it
 */
export function boundHeapGrowth(options: HeapGrowthOptions): () => void {
  const { growth, largeFromMb = Infinity } = options
  const { residentBytes = residentSize, cpuMs = cpuTimeMs, nowMs = monotonicMs } = options
  const { setGrowth = setHeapGrowth, collect = lookThrough } = options
  let current = growth.busy
  let isLarge = false
  let last = { atMs: nowMs(), cpuMs: cpuMs() }
  const timer = setInterval(() => {
    const now = { atMs: nowMs(), cpuMs: cpuMs() }
    const isBusy = now.cpuMs - last.cpuMs >= BUSY_SHARE * (now.atMs - last.atMs)
    last = now
    const wasLarge = isLarge
    isLarge = residentBytes() / MB >= (isLarge ? largeFromMb * SMALL_AGAIN : largeFromMb)
    const wanted = isBusy && !isLarge ? growth.busy : growth.tight
    if (wanted !== current) setGrowth(wanted)
    current = wanted
    // Until then V8 goes by what it was told when it last looked: while the process was busy and small, though it may be idle now.
    if (isLarge && !wasLarge) collect()
  }, LOOK_EACH_MS)
  timer.unref()
  return () => clearInterval(timer)
}

const residentSize = () => process.memoryUsage.rss()

function cpuTimeMs(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1000
}

/** V8 reads it each time that it has looked through the heap. */
function setHeapGrowth(percent: number): void {
  setFlagsFromString(`--heap-growing-percent=${percent}`)
}

/** Some tens of milliseconds, once for each time that the process becomes large. */
function lookThrough(): void {
  setFlagsFromString('--expose-gc')
  const gc = runInNewContext('gc') as () => void
  setFlagsFromString('--no-expose-gc')
  gc()
}
