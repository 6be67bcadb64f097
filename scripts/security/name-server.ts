/**
 * A name server that lies as it is told to: its answers have a time to live of 0, so that nobody may keep them.
 */
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { isIPv4 } from 'node:net'

/** What a name is answered with. */
export interface NameAnswer {
  /** The name that it really is, and whose addresses follow. */
  cname?: string
  /** IPv4 and IPv6. */
  addresses?: string[]
  /** It says that it can't tell, or that its answer was too long for this way of asking; there is no other. */
  fault?: 'server_failure' | 'truncated'
  /** Nothing is answered at all. */
  silent?: boolean
  delayMs?: number
}

export interface NameServer {
  /** `address:port` */
  address: string
  close(): void
}

const TYPE_A = 1
const TYPE_CNAME = 5
const TYPE_AAAA = 28
const NO_SUCH_NAME = 3
const FAULT_FLAGS = { server_failure: 2, truncated: 0x0200 }
const HEADER_BYTES = 12
/** Type and class of a question. */
const QUESTION_TAIL_BYTES = 4

/** @param answerOf called with the name in lower case, once for each question; undefined: there is no such name */
export async function startNameServer(
  answerOf: (name: string, family: 4 | 6) => NameAnswer | undefined,
): Promise<NameServer> {
  const socket = createSocket('udp4')
  let closed = false
  socket.on('message', (query, from) => {
    const { response, delayMs, silent } = respond(query, answerOf)
    if (silent) return
    const send = () => closed || socket.send(response, from.port, from.address)
    if (delayMs === 0) send()
    else setTimeout(send, delayMs)
  })
  socket.bind(0, '127.0.0.1')
  await once(socket, 'listening')
  const close = () => {
    closed = true
    socket.close()
  }
  return { address: `127.0.0.1:${socket.address().port}`, close }
}

function respond(
  query: Buffer,
  answerOf: (name: string, family: 4 | 6) => NameAnswer | undefined,
): { response: Buffer; delayMs: number; silent: boolean } {
  const labels: string[] = []
  let at = HEADER_BYTES
  for (let length = query[at]!; length > 0; length = query[at]!) {
    labels.push(query.toString('latin1', at + 1, at + 1 + length))
    at += 1 + length
  }
  const name = labels.join('.').toLowerCase()
  const type = query.readUInt16BE(at + 1)
  const question = query.subarray(HEADER_BYTES, at + 1 + QUESTION_TAIL_BYTES)
  const answer = answerOf(name, type === TYPE_AAAA ? 6 : 4)
  const records = answer ? recordsOf(name, type, answer) : []
  const header = Buffer.alloc(HEADER_BYTES)
  query.copy(header, 0, 0, 2)
  // An authoritative answer, with recursion asked for and available.
  header.writeUInt16BE(0x8580 | (answer ? (answer.fault ? FAULT_FLAGS[answer.fault] : 0) : NO_SUCH_NAME), 2)
  header.writeUInt16BE(1, 4)
  header.writeUInt16BE(records.length, 6)
  const response = Buffer.concat([header, question, ...records])
  return { response, delayMs: answer?.delayMs ?? 0, silent: answer?.silent ?? false }
}

function recordsOf(name: string, type: number, { cname, addresses = [] }: NameAnswer): Buffer[] {
  const wanted = addresses.filter((address) => (isIPv4(address) ? TYPE_A : TYPE_AAAA) === type)
  return [
    ...(cname === undefined ? [] : [record(name, TYPE_CNAME, encodeName(cname))]),
    ...wanted.map((address) => record(cname ?? name, type, Buffer.from(addressBytes(address)))),
  ]
}

function record(name: string, type: number, data: Buffer): Buffer {
  const fields = Buffer.alloc(10)
  fields.writeUInt16BE(type, 0)
  fields.writeUInt16BE(1, 2)
  fields.writeUInt16BE(data.length, 8)
  return Buffer.concat([encodeName(name), fields, data])
}

function encodeName(name: string): Buffer {
  const parts = name.split('.').map((label) => Buffer.from(`${String.fromCharCode(label.length)}${label}`, 'latin1'))
  return Buffer.concat([...parts, Buffer.from([0])])
}

function addressBytes(address: string): number[] {
  if (isIPv4(address)) return address.split('.').map(Number)
  // The URL parser writes a last part in dots as hexadecimal.
  const text = new URL(`http://[${address}]/`).hostname.slice(1, -1)
  const [head, tail] = text.split('::').map((part) => (part === '' ? [] : part.split(':')))
  const missing = tail === undefined ? 0 : 8 - head!.length - tail.length
  return [...head!, ...Array<string>(missing).fill('0'), ...(tail ?? [])].flatMap((group) => {
    const number = parseInt(group, 16)
    return [number >> 8, number & 0xff]
  })
}
