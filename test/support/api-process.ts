/**
 * A real API process on a free port: what a test kills, or has several of.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'

export interface ApiProcess {
  baseUrl: string
  /** As by `kill -9`, at once. Resolves when it is gone. */
  kill(): Promise<void>
  /** As by an operator. Resolves with the exit code. */
  stop(): Promise<number | null>
}

export interface ApiProcessOptions {
  mysqlUrl: string
  dataDir: string
  /** 32 bytes in base 64; processes that share a database share it. */
  secretsKey: string
  /** Further settings. */
  env?: Record<string, string>
}

/** @throws when it ends before it listens */
export async function startApiProcess({
  mysqlUrl,
  dataDir,
  secretsKey,
  env = {},
}: ApiProcessOptions): Promise<ApiProcess> {
  const child = spawn(process.execPath, ['src/server.ts'], {
    env: {
      ...process.env,
      NODE_ENV: 'test',
      MYSQL_URL: mysqlUrl,
      SECRETS_KEY: secretsKey,
      DATA_DIR: dataDir,
      PORT: '0',
      LOG_LEVEL: 'error',
      ...env,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const ended = once(child, 'exit')
  const baseUrl = await new Promise<string>((resolve, reject) => {
    child.stdout!.on('data', (data: Buffer) => {
      const port = /listening (\d+)/.exec(String(data))?.[1]
      if (port) resolve(`http://127.0.0.1:${port}`)
    })
    void ended.then(([code, signal]) => reject(new Error(`the API ended with ${signal ?? code}`)))
  })
  return {
    baseUrl,
    kill: async () => {
      child.kill('SIGKILL')
      await ended
    },
    stop: async () => {
      child.kill('SIGTERM')
      const [code] = await ended
      return code
    },
  }
}
