/**
 * Calls that meet: each has a connection of its own, all are written but their last byte, and then the last bytes of all go out in
 * one turn of the event loop.
 */
import { once } from 'node:events'
import { request } from 'node:http'
import { connect, type Socket } from 'node:net'
import { answerOf, type Answer } from '../crash/lead-client.ts'

export interface RaceCall {
  /** Of the process that gets it. */
  url: string
  method?: string
  path: string
  token?: string | undefined
  body?: object
  /** The body as it is. */
  rawBody?: string
}

/** For the processes to read what they have got of all of them. */
const SETTLE_MS = 5

/** @returns what sends the rest of it */
export async function prepare(call: RaceCall): Promise<() => Promise<Answer>> {
  const { hostname, port } = new URL(call.url)
  const socket = connect({ host: hostname, port: Number(port), noDelay: true })
  const isOpen = await connected(socket)
  const payload = Buffer.from(call.rawBody ?? (call.body === undefined ? '' : JSON.stringify(call.body)))
  const outgoing = request(call.url + call.path, {
    method: call.method ?? (payload.length > 0 ? 'POST' : 'GET'),
    createConnection: () => socket,
    headers: {
      connection: 'close',
      ...(call.token === undefined ? {} : { authorization: `Bearer ${call.token}` }),
      ...(payload.length > 0 ? { 'content-type': 'application/json', 'content-length': String(payload.length) } : {}),
    },
  })
  const answer = answerOf(outgoing)
  // Without a body there is nothing to hold back but all of it.
  if (isOpen && payload.length > 0) outgoing.write(payload.subarray(0, -1))
  return () => {
    outgoing.end(payload.subarray(-1))
    return answer
  }
}

/** One whose process is gone gets no answer, like one that is killed. */
function connected(socket: Socket): Promise<boolean> {
  return once(socket, 'connect').then(
    () => true,
    () => false,
  )
}

export async function atOnce(calls: RaceCall[]): Promise<Answer[]> {
  const ready = await Promise.all(calls.map(prepare))
  await new Promise((resolve) => setTimeout(resolve, SETTLE_MS))
  return Promise.all(ready.map((send) => send()))
}

/** By itself, without a barrier. */
export async function alone(call: RaceCall): Promise<Answer> {
  return (await prepare(call))()
}
