/**
 * How far a process lets its heap grow before it looks through all of it. Looking seldom is what a fast path wants, a fifth of the
 * daemon's time else; looking often is what bounds the memory. So it is seldom while the process is small.
 */
import { setFlagsFromString } from 'node:v8'

const LOOK_EACH_MS = 500
/** What is in use may grow by so much, in percent, before it is looked through. 0: as V8 sees fit, up to four times. */
const GROWTH = { small: 0, large: 60 }
/** From this share of the limit on it is small again: one that stays near it must not change each time. */
const SMALL_AGAIN = 0.8
const MB = 1024 * 1024

export interface HeapGrowthOptions {
  /** From this resident size on, in MB, the process counts as large. */
  largeFromMb: number
  residentBytes?: () => number
  /** @param percent 0: V8's own choice */
  setGrowth?: (percent: number) => void
}

/**
 * Looks at the resident size now and then, for as long as the process lives.
 * @returns what ends it
 */
export function boundHeapGrowth(options: HeapGrowthOptions): () => void {
  const { largeFromMb, residentBytes = () => process.memoryUsage.rss(), setGrowth = setHeapGrowth } = options
  let isLarge = false
  const timer = setInterval(() => {
    const limitMb = isLarge ? largeFromMb * SMALL_AGAIN : largeFromMb
    if (residentBytes() / MB >= limitMb === isLarge) return
    isLarge = !isLarge
    setGrowth(isLarge ? GROWTH.large : GROWTH.small)
  }, LOOK_EACH_MS)
  timer.unref()
  return () => clearInterval(timer)
}

/** V8 reads it each time that it has looked through the heap. */
function setHeapGrowth(percent: number): void {
  setFlagsFromString(`--heap-growing-percent=${percent}`)
}
