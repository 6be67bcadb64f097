/**
 * A datagram to every daemon that says "there is something to do". For speed only: it may be lost, doubled or sent by
 * anyone, and the daemons find everything without it.
 */
import { createSocket, type Socket } from 'node:dgram'
import type { Knex } from 'knex'
import { monotonicMs } from '../clock.ts'
import { listDaemons, type DaemonRow } from '../deliveries/daemons-repository.ts'
import { isIdShaped } from '../ids.ts'

const REFRESH_MS = 1000
/** At most one datagram to each daemon in this time. */
const SPACING_MS = 1

/** A datagram's first byte is the place in this list: a daemon need not look at its lanes for an event that nobody has routed yet. */
export const HINT_KINDS = ['events', 'lanes', 'settings'] as const

export type HintKind = (typeof HINT_KINDS)[number]

export interface Hint {
  kind: HintKind
  /** Of an event that waits for its fan-out, it is said. */
  eventId?: string | undefined
}

export function hintDatagram({ kind, eventId = '' }: Hint): Buffer {
  return Buffer.from(String.fromCharCode(HINT_KINDS.indexOf(kind)) + eventId, 'latin1')
}

/** Whatever was sent: what can't be an id counts as none. */
export function readHint(datagram: Buffer): Hint {
  const kind = HINT_KINDS[datagram[0] ?? 0] ?? 'events'
  const eventId = datagram.toString('latin1', 1)
  return kind === 'events' && isIdShaped(eventId) ? { kind, eventId } : { kind }
}

export interface HintOptions {
  /** One that waits; others may as well. */
  eventId?: string | undefined
  /** The sender's own row. */
  exceptToken?: string
}

export class DaemonHints {
  readonly #knex: Knex
  readonly #socket: Socket
  #daemons: DaemonRow[] = []
  #readAtMs = -Infinity
  #reading: Promise<void> | undefined
  #sentAtMs = -Infinity
  #closed = false

  constructor(knex: Knex) {
    this.#knex = knex
    this.#socket = createSocket('udp4')
    this.#socket.on('error', () => {})
    this.#socket.unref()
  }

  /**
   * Returns at once. Call it after the commit.
   * @param kind `events`: something waits for its fan-out; `lanes`: lanes that others own got something to send;
   *   `settings`: somebody waits until a lane's owner has read its settings again
   */
  send(kind: HintKind = 'events', options: HintOptions = {}): void {
    const nowMs = monotonicMs()
    if (this.#closed || nowMs - this.#sentAtMs < SPACING_MS) return
    this.#sentAtMs = nowMs
    if (this.#readAtMs > -Infinity) this.#transmit(kind, options)
    if (nowMs - this.#readAtMs <= REFRESH_MS) return
    const first = this.#readAtMs === -Infinity
    void this.#refresh().then(() => {
      if (first) this.#transmit(kind, options)
    })
  }

  close(): void {
    if (this.#closed) return
    this.#closed = true
    this.#socket.close()
  }

  #transmit(kind: HintKind, { eventId, exceptToken }: HintOptions): void {
    if (this.#closed) return
    const datagram = hintDatagram({ kind, eventId })
    for (const { token, hintHost, hintPort } of this.#daemons) {
      if (token !== exceptToken) this.#socket.send(datagram, hintPort, hintHost, () => {})
    }
  }

  #refresh(): Promise<void> {
    this.#reading ??= listDaemons(this.#knex)
      .then((daemons) => {
        this.#daemons = daemons
        this.#readAtMs = monotonicMs()
      })
      .catch(() => {})
      .finally(() => {
        this.#reading = undefined
      })
    return this.#reading
  }
}
