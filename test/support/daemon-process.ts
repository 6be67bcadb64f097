/**
 * Real daemon processes, which can be killed, stopped and continued.
 */
import { spawn, type ChildProcess } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { SECRETS_KEY } from './delivery-world.ts'

export interface DaemonProcesses {
  /** Resolves when it serves. */
  start(env?: Record<string, string>): Promise<ChildProcess>
  /** Kills all that still run. */
  close(): void
}

export function daemonProcesses(mysqlUrl: string, caFile: string): DaemonProcesses {
  const folder = mkdtempSync(join(tmpdir(), 'lis-daemons-'))
  const children: ChildProcess[] = []
  return {
    async start(env = {}) {
      const child = spawn(process.execPath, ['daemon/main.ts'], {
        env: {
          ...process.env,
          NODE_ENV: 'test',
          MYSQL_URL: mysqlUrl,
          SECRETS_KEY: SECRETS_KEY.toString('base64'),
          DATA_DIR: folder,
          PORT: '0',
          DAEMON_PORT: '0',
          DELIVERY_CA_FILE: caFile,
          LOG_LEVEL: 'error',
          ...env,
        },
        stdio: ['ignore', 'pipe', 'pipe'],
      })
      child.stderr.on('data', (data: Buffer) => process.stderr.write(data))
      children.push(child)
      await new Promise<void>((resolve, reject) => {
        child.stdout!.on('data', (data: Buffer) => data.includes('listening') && resolve())
        child.once('exit', (code) => reject(new Error(`the daemon ended with ${code}`)))
      })
      return child
    },
    close() {
      for (const child of children) child.kill('SIGKILL')
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

export function exited(child: ChildProcess): Promise<number | null> {
  return new Promise((resolve) => child.once('exit', resolve))
}
