/**
 * A server that lets connections wait before it accepts them, as one does that is far away or has more to do than it can: it
 * listens in a thread of its own that stands still, and its queue is full.
 */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { Worker } from 'node:worker_threads'

/** What the kernel takes for a backlog of one, and one more: whoever comes then has to ask again, a second later. */
const FILLERS = 3

const LISTENER = `
const { parentPort, workerData } = require('node:worker_threads')
const { connect, createServer } = require('node:net')
const server = createServer((socket) => {
  const target = connect(workerData.targetPort, '127.0.0.1')
  for (const [one, other] of [[socket, target], [target, socket]]) one.on('error', () => other.destroy()).pipe(other)
})
server.listen({ port: 0, host: '127.0.0.1', backlog: 1 }, () => {
  parentPort.postMessage(server.address().port)
  Atomics.wait(workerData.accepting, 0, 0)
})`

export interface LateListener {
  port: number
  /** From now on what waits is accepted and led on. */
  accept(): void
  close(): Promise<void>
}

/** @param targetPort where connections are led to, on 127.0.0.1 */
export async function startLateListener(targetPort: number): Promise<LateListener> {
  const accepting = new Int32Array(new SharedArrayBuffer(4))
  const worker = new Worker(LISTENER, { eval: true, workerData: { targetPort, accepting } })
  const [port] = (await once(worker, 'message')) as [number]
  const fillers: Socket[] = []
  for (let n = 0; n < FILLERS; n++) fillers.push(connect(port, '127.0.0.1').on('error', () => {}))
  await Promise.all(fillers.slice(0, FILLERS - 1).map((socket) => once(socket, 'connect')))
  const accept = () => {
    for (const socket of fillers) socket.destroy()
    Atomics.store(accepting, 0, 1)
    Atomics.notify(accepting, 0)
  }
  return {
    port,
    accept,
    close: async () => {
      accept()
      await worker.terminate()
    },
  }
}
