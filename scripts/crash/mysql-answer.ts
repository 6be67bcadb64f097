/**
 * Just enough of the MySQL protocol to know where a command ends and when its answer is complete.
 * Source: https://dev.mysql.com/doc/dev/mysql-server/latest/PAGE_PROTOCOL.html
 */

const HEADER_BYTES = 4
const MORE_RESULTS = 0x0008
const OK = 0x00
const EOF = 0xfe
const ERR = 0xff
/** An EOF packet is shorter than any row that begins with the same byte. */
const EOF_MAX_BYTES = 9

const COM_QUERY = 0x03

export interface Packet {
  sequence: number
  payload: Buffer
  /** With its header. */
  bytes: Buffer
}

/** Cuts a stream of bytes into packets. */
export class PacketReader {
  #rest: Buffer = Buffer.alloc(0)

  push(chunk: Buffer): Packet[] {
    let bytes = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk])
    const packets: Packet[] = []
    while (bytes.length >= HEADER_BYTES) {
      const end = HEADER_BYTES + bytes.readUIntLE(0, 3)
      if (bytes.length < end) break
      packets.push({ sequence: bytes[3]!, payload: bytes.subarray(HEADER_BYTES, end), bytes: bytes.subarray(0, end) })
      bytes = bytes.subarray(end)
    }
    this.#rest = bytes
    return packets
  }
}

/** Between the command and the text MySQL's newer protocol has the number of attributes and of their sets; we send none. */
const NO_ATTRIBUTES = Buffer.from([0, 1])

function textStart(payload: Buffer): number {
  return payload.subarray(1, 3).equals(NO_ATTRIBUTES) ? 3 : 1
}

/** @returns the text of a query; undefined for any other packet */
export function queryText({ sequence, payload }: Packet): string | undefined {
  return sequence === 0 && payload[0] === COM_QUERY ? payload.toString('utf8', textStart(payload)) : undefined
}

/** A query with another text, in the protocol of the one given. */
export function withText({ payload }: Packet, text: string): Buffer {
  const changed = Buffer.concat([payload.subarray(0, textStart(payload)), Buffer.from(text)])
  const header = Buffer.alloc(HEADER_BYTES)
  header.writeUIntLE(changed.length, 0, 3)
  return Buffer.concat([header, changed])
}

/** Follows the answer of one query, which may hold several results. */
export class AnswerReader {
  readonly #packets = new PacketReader()
  #part: 'head' | 'columns' | 'rows' = 'head'

  /** @returns whether the answer is complete with this chunk */
  push(chunk: Buffer): boolean {
    return this.#packets.push(chunk).some((packet) => this.#ends(packet.payload))
  }

  #ends(payload: Buffer): boolean {
    const first = payload[0]
    if (first === ERR) return true
    if (this.#part === 'head') {
      if (first === OK) return !hasMore(payload, 1 + lengthOfInteger(payload, 1))
      this.#part = 'columns'
      return false
    }
    if (first !== EOF || payload.length >= EOF_MAX_BYTES) return false
    if (this.#part === 'columns') {
      this.#part = 'rows'
      return false
    }
    this.#part = 'head'
    return (payload.readUInt16LE(3) & MORE_RESULTS) === 0
  }
}

/** @param at where the second of an OK packet's two integers stands; its flags follow */
function hasMore(payload: Buffer, at: number): boolean {
  return (payload.readUInt16LE(at + lengthOfInteger(payload, at)) & MORE_RESULTS) !== 0
}

function lengthOfInteger(payload: Buffer, at: number): number {
  const first = payload[at]!
  return first < 0xfb ? 1 : first === 0xfc ? 3 : first === 0xfd ? 4 : 9
}
