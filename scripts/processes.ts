/**
 * Processes that must not outlive the one that started them: starting, recognising and ending them.
 */
import { spawn, spawnSync, type ChildProcess, type SpawnOptions } from 'node:child_process'
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { monotonicMs } from '../src/clock.ts'

/** A fault that the person at the keyboard can mend: its message is one line that says how, and no stack is shown. */
export class StartFault extends Error {}

/** What tells a process from a later one that got the same id. */
export interface ProcessIdentity {
  pid: number
  /** Clock ticks since boot at its start (Linux); empty where the system does not tell. */
  startedAt: string
}

let setprivKnown: boolean | undefined

/** Whether util-linux can ask the kernel for SIGTERM at the parent's death. Linux only. */
function canTieToParent(): boolean {
  setprivKnown ??= spawnSync('setpriv', ['--pdeathsig', 'TERM', 'true'], { stdio: 'ignore' }).status === 0
  return setprivKnown
}

/**
 * Starts a process in a session of its own: Ctrl-C in a terminal reaches the supervisor alone, which then stops its
 * children in order. Where the kernel can, the process gets SIGTERM when we die without a word (kill -9); where it can't,
 * the next start finds and ends it.
 */
export function spawnTied(command: string, args: string[], options: SpawnOptions): ChildProcess {
  const [program, programArgs] = canTieToParent()
    ? ['setpriv', ['--pdeathsig', 'TERM', command, ...args]]
    : [command, args]
  return spawn(program, programArgs, { ...options, detached: true })
}

/**
 * Once told to end, this process ends all that it has started and then itself, with 1.
 * @returns what takes that back
 */
export function onInterrupt(endAll: () => Promise<void>): () => void {
  const signals = ['SIGINT', 'SIGTERM'] as const
  const end = () => void endAll().finally(() => process.exit(1))
  for (const signal of signals) process.once(signal, end)
  return () => signals.forEach((signal) => process.off(signal, end))
}

/** @returns undefined when no such process lives (a zombie does not) */
export function identify(pid: number): ProcessIdentity | undefined {
  if (existsSync('/proc/self/stat')) {
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
      // The name in brackets may hold spaces; fields are counted from behind it: state is the first, the start the 20th.
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
      if (fields[0] === 'Z' || fields[0] === 'X') return undefined
      return { pid, startedAt: fields[19] ?? '' }
    } catch {
      return undefined
    }
  }
  try {
    process.kill(pid, 0)
    return { pid, startedAt: '' }
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM' ? { pid, startedAt: '' } : undefined
  }
}

export function isAlive(process: ProcessIdentity): boolean {
  return identify(process.pid)?.startedAt === process.startedAt
}

/** Its arguments; empty when it is gone or may not be looked at. */
export function argumentsOf(pid: number): string[] {
  try {
    if (existsSync('/proc/self/cmdline')) return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').slice(0, -1)
    const { stdout } = spawnSync('ps', ['-ww', '-o', 'args=', '-p', String(pid)], { encoding: 'utf8' })
    return stdout.trim().split(' ')
  } catch {
    return []
  }
}

/** Every process that has exactly this argument. */
export function findByArgument(argument: string): ProcessIdentity[] {
  const pids = existsSync('/proc/self/cmdline')
    ? readdirSync('/proc').filter((name) => /^\d+$/.test(name))
    : spawnSync('ps', ['-axo', 'pid='], { encoding: 'utf8' }).stdout.split(/\s+/).filter(Boolean)
  return pids
    .map(Number)
    .filter((pid) => pid !== process.pid && argumentsOf(pid).includes(argument))
    .map(identify)
    .filter((found) => found !== undefined)
}

/**
 * SIGTERM, then SIGKILL when it still lives after `graceMs`; returns when it is gone.
 * @returns whether it had to be killed
 */
export async function endProcess(target: ProcessIdentity, graceMs: number): Promise<boolean> {
  signal(target, 'SIGTERM')
  if (await isGone(target, graceMs)) return false
  signal(target, 'SIGKILL')
  await isGone(target, 10_000)
  return true
}

/** Polls, because only a parent is told of an end, and these may be another's children. */
async function isGone(target: ProcessIdentity, timeoutMs: number): Promise<boolean> {
  const deadline = monotonicMs() + timeoutMs
  while (isAlive(target)) {
    if (monotonicMs() > deadline) return false
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
  return true
}

function signal(target: ProcessIdentity, name: NodeJS.Signals): void {
  try {
    if (isAlive(target)) process.kill(target.pid, name)
  } catch (error) {
    // It ended between the look and the signal.
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}

/** The last lines of a text file; empty when it can't be read. */
export function lastLines(file: string, count: number): string {
  try {
    return readFileSync(file, 'utf8').trimEnd().split('\n').slice(-count).join('\n')
  } catch {
    return ''
  }
}
