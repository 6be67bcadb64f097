/**
 * What may happen to a database and to the way to it, one fault at a time, while clients go on.
 */
import { execFileSync } from 'node:child_process'
import { closeSync, openSync, rmSync, statfsSync, writeSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { CrashProcess } from './crash-arena.ts'
import type { CrashServer } from './crash-server.ts'

export interface FaultStage {
  server: CrashServer
  api: CrashProcess
  daemon: CrashProcess
  /** How long what lasts lasts, in milliseconds. */
  lastsMs: number
}

export interface DatabaseFault {
  name: string
  /** @returns when the fault is over, with a remark on what came of it */
  run(stage: FaultStage): Promise<string | void>
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))
const proxies = ({ api, daemon }: FaultStage) => [api.proxy, daemon.proxy]

export const DATABASE_FAULTS: DatabaseFault[] = [
  {
    // The server's process stands still: connections are accepted by the kernel and never greeted.
    name: 'stopped (SIGSTOP)',
    async run({ server, lastsMs }) {
      process.kill(server.pid, 'SIGSTOP')
      await pause(lastsMs)
      process.kill(server.pid, 'SIGCONT')
    },
  },
  {
    name: 'black hole',
    async run(stage) {
      for (const proxy of proxies(stage)) proxy.mode = 'hold'
      await pause(stage.lastsMs)
      for (const proxy of proxies(stage)) proxy.mode = 'pass'
    },
  },
  {
    // What is asked arrives and is done; no answer comes back.
    name: 'deaf',
    async run(stage) {
      for (const proxy of proxies(stage)) proxy.mode = 'deaf'
      await pause(stage.lastsMs)
      for (const proxy of proxies(stage)) proxy.mode = 'pass'
    },
  },
  {
    // As after the loss of a firewall's state: nobody says that what is open has ended.
    name: 'half-open',
    async run(stage) {
      for (const proxy of proxies(stage)) proxy.abandon()
    },
  },
  {
    name: 'reset',
    async run(stage) {
      for (let n = 0; n < 20; n++) {
        for (const proxy of proxies(stage)) proxy.reset()
        await pause(100)
      }
    },
  },
  {
    name: 'refused',
    async run(stage) {
      for (const proxy of proxies(stage)) proxy.mode = 'reset'
      await pause(stage.lastsMs)
      for (const proxy of proxies(stage)) proxy.mode = 'pass'
    },
  },
  {
    name: 'kill -9',
    async run({ server }) {
      await server.kill()
      await server.restart()
    },
  },
]

const FILLER = 'filler'

/** Only where the server's folder is a disk of its own: leaves no byte free. */
export const DISK_FULL: DatabaseFault = {
  name: 'disk full',
  async run({ server, lastsMs }) {
    const file = join(server.folder, FILLER)
    fillDisk(file)
    await pause(2 * lastsMs)
    rmSync(file)
    // MariaDB gives itself up when even a rollback finds no room; whoever supervises it starts it again.
    return (await server.revive()) ? 'the server had ended itself' : undefined
  },
}

/** Writes until nothing more fits: the server takes some of what is free meanwhile. */
function fillDisk(file: string): void {
  const { bavail, bsize } = statfsSync(dirname(file))
  const descriptor = openSync(file, 'w')
  try {
    for (let left = bavail; left > 0; left--) writeSync(descriptor, Buffer.alloc(bsize))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error
  } finally {
    closeSync(descriptor)
  }
}

/** @returns the folder, or undefined where one can't be mounted (not root, or not Linux) */
export function mountSmallDisk(folder: string, megabytes: number): { unmount(): void } | undefined {
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${megabytes}m`, 'tmpfs', folder], { stdio: 'ignore' })
  } catch {
    return undefined
  }
  return { unmount: () => execFileSync('umount', [folder]) }
}
