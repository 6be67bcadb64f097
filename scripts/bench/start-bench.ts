/**
 * How long `make run` takes to serve.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { monotonicMs } from '../../src/clock.ts'
import type { BenchWorld } from './bench-world.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const START_TIMEOUT_MS = 300_000

/** Seconds from the command to its line `ready: …`; then it is stopped. */
export async function secondsToReady(folder: string, dataDir: string): Promise<number> {
  const { MYSQL_URL: _, ...env } = process.env
  const startedAtMs = monotonicMs()
  const child = spawn('make', ['run'], {
    cwd: folder,
    env: { ...env, DATA_DIR: dataDir, PORT: '0', DAEMON_PORT: '0' },
    stdio: ['ignore', 'pipe', 'pipe'],
    // A group of its own: the signal to it reaches everything that make has started.
    detached: true,
  })
  const ended = once(child, 'exit')
  let output = ''
  const seconds = await new Promise<number>((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`make run was not ready in time:\n${output}`)), START_TIMEOUT_MS)
    const read = (text: Buffer) => {
      output += String(text)
      if (!output.includes('ready: ')) return
      clearTimeout(timer)
      resolve((monotonicMs() - startedAtMs) / 1000)
    }
    child.stdout.on('data', read)
    child.stderr.on('data', read)
    child.once('exit', () => reject(new Error(`make run ended:\n${output}`)))
  })
  process.kill(-child.pid!, 'SIGTERM')
  await ended
  return seconds
}

/** On data that is there already. */
export async function warmStart(world: BenchWorld): Promise<number> {
  const dataDir = join(world.folder, 'warm-start')
  if (!world.isPrepared.has(dataDir)) await secondsToReady(ROOT, dataDir)
  world.isPrepared.add(dataDir)
  return secondsToReady(ROOT, dataDir)
}
