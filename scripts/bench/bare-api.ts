import { fork, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import type { BareOrder } from './bare-api-process.ts'

/** The bare server that the API is measured against, as a process of its own. */
export async function startBareApi(order: BareOrder): Promise<{ child: ChildProcess; baseUrl: string }> {
  const child = fork(join(import.meta.dirname, 'bare-api-process.ts'))
  child.send(order)
  const [{ port }] = (await once(child, 'message')) as [{ port: number }]
  return { child, baseUrl: `http://127.0.0.1:${port}` }
}
