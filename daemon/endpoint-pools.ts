/**
 * Kept-alive connections to endpoints, by account and origin: who sends one answer too many, late, answers the next request on that
 * connection, and that must not be somebody else's. There is no queue: the caller bounds what is in flight, and a request
 * that finds no free connection gets a new one.
 */
import { monotonicMs } from '../src/clock.ts'
import { EndpointConnection, type ConnectionOwner, type Exchange } from './endpoint-connection.ts'
import type { ConnectEndpoint, EndpointOrigin } from './endpoint-connector.ts'
import type { RequestTarget } from './http-request.ts'
import type { TurnEnd } from './turn-end.ts'

const IDLE_CONNECTION_MS = 8000
/** A server that names a time closes at it: a request must not be on its way then. */
const KEEP_ALIVE_MARGIN_MS = 2000
/** An origin that nothing was sent to for so long is forgotten, with its TLS session. */
const IDLE_POOL_MS = 60_000
const SWEEP_MS = 1000
/** How soon it is seen that an endpoint floods its connection. For two thousand connections a look takes 0.1 ms. */
const LOOK_FOR_FLOODS_MS = 250
/**
 * Closing one takes some 0.1 ms, and half of that at the other end. After a burst of events for thousands of accounts as many
 * connections are given up in one second: in one go nothing would be sent for a fifth of a second, and an endpoint that has many of
 * them would answer nothing meanwhile.
 */
const CLOSED_AT_ONCE = 8
const CLOSE_EACH_MS = 5
/** What a request fails with that the client was closed under. */
const CLOSED = 'UND_ERR_DESTROYED'

interface Pool extends ConnectionOwner {
  origin: EndpointOrigin
  /** The one used last is the first to be used again, so that few are kept warm. */
  free: EndpointConnection[]
  /** How many there are, free or not. */
  open: number
  usedAtMs: number
}

export class EndpointPools {
  readonly #connect: ConnectEndpoint
  readonly #turnEnd: TurnEnd
  readonly #pools = new Map<string, Pool>()
  readonly #open = new Set<EndpointConnection>()
  /** Given up, and not closed yet. */
  #expired: EndpointConnection[] = []
  readonly #sweeper = setInterval(() => this.#sweep(monotonicMs()), SWEEP_MS)
  readonly #flooded = setInterval(() => this.#closeFlooded(), LOOK_FOR_FLOODS_MS)
  #closed = false

  constructor(connect: ConnectEndpoint, turnEnd: TurnEnd) {
    this.#connect = connect
    this.#turnEnd = turnEnd
    this.#sweeper.unref()
    this.#flooded.unref()
  }

  /**
   * Sends over a free connection or a new one.
   * @param nowMs monotonic
   * @throws when the address may not be called
   */
  send(target: RequestTarget, exchange: Exchange, nowMs: number): EndpointConnection {
    const pool = this.#poolOf(target)
    pool.usedAtMs = nowMs
    for (let free = pool.free.pop(); free; free = pool.free.pop()) {
      if (free.idleUntilMs > nowMs) {
        this.#reserve(free, exchange)
        return free
      }
      free.close()
    }
    return this.sendFresh(target, exchange)
  }

  /**
   * Sends over a new connection.
   * @throws when the address may not be called
   */
  sendFresh(target: RequestTarget, exchange: Exchange): EndpointConnection {
    if (this.#closed) throw closedError()
    const pool = this.#poolOf(target)
    const connection = new EndpointConnection(this.#connect, pool.origin, pool, exchange)
    pool.open++
    this.#open.add(connection)
    return connection
  }

  /** Closes all connections; what is under way on them fails. */
  close(): void {
    this.#closed = true
    clearInterval(this.#sweeper)
    clearInterval(this.#flooded)
    for (const connection of this.#open) connection.close(closedError())
    this.#pools.clear()
  }

  /**
   * A used connection is written to at the end of this turn of the event loop, when all that had arrived on it has been read:
   * what nobody asked for, or the end, must not be taken for what becomes of this request.
   */
  #reserve(connection: EndpointConnection, exchange: Exchange): void {
    connection.reserve(exchange)
    this.#turnEnd.write(connection)
  }

  #poolOf({ pool: name, host, port }: RequestTarget): Pool {
    let pool = this.#pools.get(name)
    if (!pool) {
      pool = newPool({ host, port, session: undefined }, this.#open)
      this.#pools.set(name, pool)
    }
    return pool
  }

  #sweep(nowMs: number): void {
    const areClosing = this.#expired.length > 0
    for (const [name, pool] of this.#pools) {
      // They stay among the free ones until they are closed: one that has expired is not sent over.
      if (!areClosing) this.#expired.push(...pool.free.filter(({ idleUntilMs }) => idleUntilMs <= nowMs))
      if (pool.open === 0 && nowMs - pool.usedAtMs > IDLE_POOL_MS) this.#pools.delete(name)
    }
    if (!areClosing) this.#closeSome()
  }

  #closeFlooded(): void {
    for (const connection of this.#open) connection.closeIfFlooded()
  }

  /** Between them both ends have time for what is to be sent. */
  readonly #closeSome = (): void => {
    for (let n = 0; n < CLOSED_AT_ONCE; n++) this.#expired.pop()?.close()
    if (this.#expired.length > 0) setTimeout(this.#closeSome, CLOSE_EACH_MS).unref()
  }
}

/** @param all the open connections of all pools */
function newPool(origin: EndpointOrigin, all: Set<EndpointConnection>): Pool {
  const free: EndpointConnection[] = []
  return {
    origin,
    free,
    open: 0,
    usedAtMs: 0,
    released(connection, keepAliveSeconds) {
      const hintMs = keepAliveSeconds < 0 ? IDLE_CONNECTION_MS : keepAliveSeconds * 1000 - KEEP_ALIVE_MARGIN_MS
      connection.idleUntilMs = monotonicMs() + Math.min(hintMs, IDLE_CONNECTION_MS)
      if (hintMs > 0) free.push(connection)
      else connection.close()
    },
    gone(connection) {
      this.open--
      all.delete(connection)
      const at = free.indexOf(connection)
      if (at >= 0) free.splice(at, 1)
    },
  }
}

function closedError(): Error {
  return Object.assign(new Error('the client was closed'), { code: CLOSED })
}
