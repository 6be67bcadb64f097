/**
 * When to stop: a signal, or the end of the `make` that started us.
 */
import { readFileSync } from 'node:fs'

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
/** SIGHUP 1, SIGINT 2, SIGQUIT 3, SIGTERM 15, as bits of a mask in /proc. */
const ENDING_SIGNALS_MASK = 0b100_0000_0000_0111n
const LOOK_EVERY_MS = 300

/** @param onStop may be called more than once */
export function onStopRequest(onStop: (why: string) => void): void {
  const outlivesTerminal = ignoresHangUp(process.ppid)
  for (const signal of SIGNALS) {
    process.on(signal, () => {
      if (signal !== 'SIGHUP' || !outlivesTerminal) onStop(signal)
    })
  }
  watchMake(onStop)
}

/**
 * GNU make hands SIGTERM on to its recipe, but not SIGINT or SIGHUP: it takes it that a terminal has sent those to the whole
 * group, and waits for the recipe, for ever when only make was signalled. While it waits like that the signal is blocked in
 * it, which /proc shows (commands.c, fatal_error_signal; seen with 4.3). A make that is gone (kill -9) shows by our parent.
 */
function watchMake(onStop: (why: string) => void): void {
  const make = process.ppid
  if (!['make', 'gmake'].includes(read(`/proc/${make}/comm`).trim())) return
  setInterval(() => {
    if (process.ppid !== make) return onStop('make is gone')
    const blocked = /^SigBlk:\s*([0-9a-f]+)$/m.exec(read(`/proc/${make}/status`))?.[1] ?? '0'
    if (BigInt(`0x${blocked}`) & ENDING_SIGNALS_MASK) onStop('make was told to end')
  }, LOOK_EVERY_MS).unref()
}

/** `nohup make run &`: Node forgets at its start that it was told to ignore it, and what has started us knows it still. */
function ignoresHangUp(parent: number): boolean {
  const ignored = /^SigIgn:\s*([0-9a-f]+)$/m.exec(read(`/proc/${parent}/status`))?.[1] ?? '0'
  return (BigInt(`0x${ignored}`) & 1n) === 1n
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}
