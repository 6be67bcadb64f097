/**
 * A connection to an integrator's endpoint: one request at a time, written in one piece, and its answer read strictly. Our own
 * because delivery is mostly this: an HTTP library's general case cost 14 of the 37 µs that a delivered request took, signature
 * and TLS included.
 */
import type { TLSSocket } from 'node:tls'
import { monotonicMs } from '../src/clock.ts'
import type { ConnectEndpoint, EndpointOrigin } from './endpoint-connector.ts'
import { CONNECTION_OVER, HttpAnswer } from './http-answer.ts'
import { RequestMemory } from './http-request.ts'

/** A request on its way over a connection, told what becomes of it. */
export interface Exchange {
  /**
   * Head and body.
   * @param memory is written to, if there is room for them
   * @throws when a header is not one
   */
  bytes(memory: RequestMemory | undefined): Buffer
  /** The head has ended. It may settle here, and so abandon the connection. */
  answered(answer: HttpAnswer): void
  /** Nothing more of the answer will come, or be read. The connection may be in use again by now. */
  ended(): void
  /** @param untouched a kept-alive connection ended as the request came, and no byte of an answer had come */
  failed(error: Error, untouched: boolean): void
}

/** What a connection tells its pool. */
export interface ConnectionOwner {
  /** It can carry another request. */
  released(connection: EndpointConnection, keepAliveSeconds: number): void
  /** It is of no more use. Told once. */
  gone(connection: EndpointConnection): void
}

/** So long may the end of an idle connection and a request be on their way at once. */
const CROSSING_MS = 1000

/**
 * Session tickets and new keys that may come for one request, and while none is under way: an honest server sends two tickets with the
 * handshake, of which Node tells with five keys. Thousands fit into one packet, each costs this side ten times what it costs that
 * one, and nothing else tells of them: other endpoints' events would wait.
 */
const MOST_BESIDE_ANSWER = 64
/**
 * Over the wire, for one request and while none is under way: the certificates of a handshake and an answer as far as it is read are less
 * by far. Of some things that come inside TLS nothing tells at all, such as tickets for a session that is too large.
 */
const MOST_ARRIVED_BYTES = 524_288
/** What a flooded connection is told apart by. */
export const FLOODED = 'LIS_TLS_FLOOD'

/** All connections read into the same memory: what has arrived is taken before anything else can arrive. */
const arrived = Buffer.allocUnsafeSlow(65_536)

export class EndpointConnection {
  /** Monotonic: when the pool gives it up, while nobody uses it. */
  idleUntilMs = 0
  readonly #owner: ConnectionOwner
  readonly #socket: TLSSocket
  #answer = new HttpAnswer()
  readonly #memory = new RequestMemory()
  #exchange: Exchange | undefined
  #ready = false
  /** Ready to be written. */
  #request: Buffer | undefined
  #used = false
  #besideAnswer = 0
  /** Over the wire, before the exchange. */
  #arrivedBefore = 0
  /** Monotonic. */
  #sentAtMs: number | undefined
  #heard = false
  #over = false

  /** @throws when the address may not be called */
  constructor(connect: ConnectEndpoint, origin: EndpointOrigin, owner: ConnectionOwner, exchange: Exchange) {
    this.#owner = owner
    this.#exchange = exchange
    this.#socket = connect(origin, { buffer: arrived, callback: (length) => this.#take(length) })
    // Once: what would connect it anew would send its request anew.
    this.#socket.once('secureConnect', () => this.#connected())
    // The keys themselves are nobody's business.
    this.#socket.on('keylog', () => this.#cameBeside())
    this.#socket.on('session', () => this.#cameBeside())
    this.#socket.on('end', () => this.#ended())
    // Stays for good: what happens to a socket that nobody needs any more is nobody's business.
    this.#socket.on('error', (error) => this.close(error))
    this.#socket.on('close', () => this.close())
  }

  /** For a connection that was released. Nothing is written before `write`. */
  reserve(exchange: Exchange): void {
    this.#exchange = exchange
    this.#answer = new HttpAnswer()
    this.#sentAtMs = undefined
    this.#heard = false
    this.#besideAnswer = 0
    this.#arrivedBefore = arrivedBytes(this.#socket)
  }

  /** Gives up an endpoint that goes on sending what is no answer. Whoever wants to know has to look. */
  closeIfFlooded(): void {
    if (arrivedBytes(this.#socket) - this.#arrivedBefore > MOST_ARRIVED_BYTES) this.close(flooded())
  }

  /** Puts the request together, unless its connection or its exchange has ended meanwhile. */
  prepare(): void {
    if (!this.#exchange || !this.#ready || this.#over) return
    try {
      // An answer may come before all of its request has left: that is not to be written over.
      this.#request = this.#exchange.bytes(this.#socket.writableLength === 0 ? this.#memory : undefined)
    } catch (error) {
      this.close(error as Error)
    }
  }

  /** Writes what was put together, once. */
  write(): void {
    const request = this.#request
    this.#request = undefined
    if (!request || !this.#exchange || this.#over) return
    this.#sentAtMs = monotonicMs()
    this.#socket.write(request)
  }

  /** The exchange is over, whatever of it is still under way. Says nothing to one that has left already. */
  abandon(exchange: Exchange): void {
    if (this.#exchange !== exchange) return
    this.#exchange = undefined
    this.close()
  }

  /** @param error what its exchange fails with, if there is one */
  close(error?: Error): void {
    if (this.#over) return
    this.#over = true
    this.#owner.gone(this)
    this.#socket.destroy()
    const exchange = this.#exchange
    this.#exchange = undefined
    exchange?.failed(error ?? connectionOver(), this.#used && !this.#heard && this.#isJustSent())
  }

  /** Later its end is no longer that of an idle connection: whoever ends it has had the request. */
  #isJustSent(): boolean {
    return this.#sentAtMs === undefined || monotonicMs() - this.#sentAtMs < CROSSING_MS
  }

  #connected(): void {
    // The deadline's timer keeps the process while an answer is awaited: a connection alone does not.
    this.#socket.unref()
    this.#ready = true
    this.prepare()
    this.write()
  }

  #cameBeside(): void {
    if (++this.#besideAnswer > MOST_BESIDE_ANSWER) this.close(flooded())
  }

  /** @returns whether to read on */
  #take(length: number): boolean {
    const exchange = this.#exchange
    if (this.#over) return false
    // Nobody has asked: taken for the answer to the next request, it would be believed.
    if (!exchange || this.#sentAtMs === undefined) {
      this.close()
      return false
    }
    this.#heard = true
    const answer = this.#answer
    const headKnown = answer.status !== 0
    answer.push(arrived, length)
    if (answer.fault) {
      this.close(Object.assign(new Error('the head of the answer can not be read'), { code: answer.fault }))
      return false
    }
    if (answer.status === 0) return !answer.endless
    if (!headKnown) exchange.answered(answer)
    if (answer.over) this.#finish()
    return !this.#over
  }

  #ended(): void {
    if (this.#exchange) {
      this.#answer.close()
      if (this.#answer.over) this.#finish()
    }
    this.close()
  }

  #finish(): void {
    const exchange = this.#exchange
    this.#exchange = undefined
    this.#used = true
    if (this.#answer.reusable && !this.#over) this.#owner.released(this, this.#answer.keepAliveSeconds)
    else this.close()
    exchange?.ended()
  }
}

/** Node counts them where TLS reads from, and shows only what is left of them. */
function arrivedBytes(socket: TLSSocket): number {
  const { _handle: handle } = socket as unknown as { _handle: { _parent?: { bytesRead: number } } | null }
  return handle?._parent?.bytesRead ?? 0
}

function flooded(): Error {
  return Object.assign(new Error('more came beside the answer than a server has to say'), { code: FLOODED })
}

function connectionOver(): Error {
  return Object.assign(new Error('the connection was closed'), { code: CONNECTION_OVER })
}
