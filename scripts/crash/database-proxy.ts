/**
 * Stands between one process and its database, understands where a query begins and its answer ends, and makes something
 * happen exactly there: the crash points of a process are placed from outside, so that no code for them is shipped.
 */
import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type NetConnectOpts, type Socket } from 'node:net'
import { parseMysqlUrl } from '../../db/mysql-url.ts'
import { AnswerReader, PacketReader, queryText, withText, type Packet } from './mysql-answer.ts'

/**
 * Where at a query something happens:
 * - `before`: it does not reach the database;
 * - `within`: of several statements in one query those up to and including the one that matches are done, no more;
 * - `after`: all of it is done, and the process does not get the answer.
 */
export type When = 'before' | 'within' | 'after'

export interface QueryPoint {
  /** Looked for in the text of each query. */
  statement: RegExp
  when: When
}

/**
 * - `pass`
 * - `hold`: nothing gets through in either direction, connections stay open and new ones are accepted
 * - `deaf`: what is asked reaches the database, no answer comes back
 * - `reset`: connections are reset, new ones as well
 */
export type ProxyMode = 'pass' | 'hold' | 'deaf' | 'reset'

export interface DatabaseProxy {
  /** The database's URL, by way of the proxy. */
  mysqlUrl: string
  mode: ProxyMode
  /** How long the answer to a query is on its way, in milliseconds. */
  delayOf: (text: string) => number
  /** `hit` is called once, when the point is reached; nothing more passes over that connection. */
  arm(point: QueryPoint, hit: (cut: () => void) => void): void
  disarm(): void
  /** What is open now goes silent for good, without an end; new connections work. */
  abandon(): void
  /** Resets what is open now. */
  reset(): void
  close(): void
}

interface Armed {
  point: QueryPoint
  hit: (cut: () => void) => void
}

/** @param targetUrl of the database itself, by port or by socket */
export async function startDatabaseProxy(targetUrl: string): Promise<DatabaseProxy> {
  const { socketPath, host, port } = parseMysqlUrl(targetUrl)
  const target: NetConnectOpts = socketPath ? { path: socketPath } : { host: host!, port: port! }
  const relays = new Set<Relay>()
  let mode: ProxyMode = 'pass'
  let delayOf: DatabaseProxy['delayOf'] = () => 0
  let armed: Armed | undefined
  const takeArmed = (text: string) => {
    if (!armed?.point.statement.test(text)) return undefined
    const taken = armed
    armed = undefined
    return taken
  }
  const server = createServer({ noDelay: true }, (downstream) => {
    if (mode === 'reset') return void downstream.resetAndDestroy()
    const relay = new Relay(downstream, connect({ ...target, noDelay: true } as NetConnectOpts), takeArmed, (text) =>
      delayOf(text),
    )
    relays.add(relay)
    downstream.on('close', () => relays.delete(relay))
    relay.pass(mode)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = new URL(targetUrl)
  url.hostname = '127.0.0.1'
  url.port = String((server.address() as AddressInfo).port)
  url.searchParams.delete('socketPath')
  const reset = () => relays.forEach((relay) => relay.reset())
  return {
    mysqlUrl: url.href,
    get mode() {
      return mode
    },
    set mode(next) {
      mode = next
      if (next === 'reset') reset()
      else relays.forEach((relay) => relay.pass(next))
    },
    get delayOf() {
      return delayOf
    },
    set delayOf(next) {
      delayOf = next
    },
    arm: (point, hit) => (armed = { point, hit }),
    disarm: () => (armed = undefined),
    abandon: () => relays.forEach((relay) => relay.abandon()),
    reset,
    close: () => {
      server.close()
      reset()
    },
  }
}

class Relay {
  readonly #downstream: Socket
  readonly #upstream: Socket
  readonly #takeArmed: (text: string) => Armed | undefined
  readonly #delayOf: (text: string) => number
  readonly #queries = new PacketReader()
  /** The answer that the point waits for. */
  #awaited: { answer: AnswerReader; hit: Armed['hit'] } | undefined
  #isOver = false
  #isAbandoned = false

  constructor(
    downstream: Socket,
    upstream: Socket,
    takeArmed: (text: string) => Armed | undefined,
    delayOf: (text: string) => number,
  ) {
    this.#downstream = downstream
    this.#upstream = upstream
    this.#takeArmed = takeArmed
    this.#delayOf = delayOf
    downstream.on('data', (chunk) => this.#onQueries(chunk))
    upstream.on('data', (chunk) => this.#onAnswer(chunk))
    for (const [from, to] of [[downstream, upstream], [upstream, downstream]] as const) {
      from.on('error', () => {})
      from.on('close', () => !this.#isAbandoned && to.destroy())
    } // prettier-ignore
  }

  pass(mode: ProxyMode): void {
    if (this.#isAbandoned) return
    for (const [socket, flows] of [[this.#downstream, mode === 'pass' || mode === 'deaf'], [this.#upstream, mode === 'pass']] as const) {
      if (flows) socket.resume()
      else socket.pause()
    } // prettier-ignore
  }

  abandon(): void {
    this.#isAbandoned = true
    this.#downstream.pause()
    this.#upstream.pause()
  }

  reset(): void {
    this.#downstream.resetAndDestroy()
    this.#upstream.destroy()
  }

  #onQueries(chunk: Buffer): void {
    if (this.#isOver) return
    for (const packet of this.#queries.push(chunk)) {
      if (!this.#isOver) this.#forward(packet)
    }
  }

  #forward(packet: Packet): void {
    const text = queryText(packet)
    const armed = text === undefined ? undefined : this.#takeArmed(text)
    if (!armed) {
      this.#upstream.write(packet.bytes)
      const delayMs = text === undefined ? 0 : this.#delayOf(text)
      if (delayMs > 0) this.#hold(delayMs)
      return
    }
    this.#isOver = true
    if (armed.point.when === 'before') return armed.hit(() => this.reset())
    this.#awaited = { answer: new AnswerReader(), hit: armed.hit }
    this.#upstream.write(
      armed.point.when === 'after' ? packet.bytes : withText(packet, upTo(text!, armed.point.statement)),
    )
  }

  /** A connection has one query under way. */
  #hold(delayMs: number): void {
    this.#upstream.pause()
    setTimeout(() => this.#isAbandoned || this.#upstream.resume(), delayMs)
  }

  #onAnswer(chunk: Buffer): void {
    if (!this.#awaited) return void (this.#isOver || this.#downstream.write(chunk))
    if (!this.#awaited.answer.push(chunk)) return
    const { hit } = this.#awaited
    this.#awaited = undefined
    hit(() => this.reset())
  }
}

/** The statements of a query up to and including the one that matches; `db/batch.ts` puts one on a line. */
function upTo(text: string, statement: RegExp): string {
  const statements = text.split(';\n')
  const last = statements.findIndex((one) => statement.test(one))
  return statements.slice(0, last + 1).join(';\n')
}
