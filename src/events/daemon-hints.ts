/**
 * A datagram to every daemon that says "there is something to do". For speed only: it carries no data, may be lost, and
 * the daemons find everything without it.
 */
import { createSocket, type Socket } from 'node:dgram'
import type { Knex } from 'knex'
import { monotonicMs } from '../clock.ts'
import { listDaemons, type DaemonRow } from '../deliveries/daemons-repository.ts'

const REFRESH_MS = 1000
/** At most one datagram to each daemon in this time. */
const SPACING_MS = 1

/** A datagram's one byte is the place in this list: a daemon need not look at its lanes for an event that nobody has routed yet. */
export const HINT_KINDS = ['events', 'lanes', 'settings'] as const

export type HintKind = (typeof HINT_KINDS)[number]

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
   * @param exceptToken the sender's own row
   */
  send(kind: HintKind = 'events', exceptToken?: string): void {
    const nowMs = monotonicMs()
    if (this.#closed || nowMs - this.#sentAtMs < SPACING_MS) return
    this.#sentAtMs = nowMs
    if (this.#readAtMs > -Infinity) this.#transmit(kind, exceptToken)
    if (nowMs - this.#readAtMs <= REFRESH_MS) return
    const first = this.#readAtMs === -Infinity
    void this.#refresh().then(() => {
      if (first) this.#transmit(kind, exceptToken)
    })
  }

  close(): void {
    if (this.#closed) return
    this.#closed = true
    this.#socket.close()
  }

  #transmit(kind: HintKind, exceptToken: string | undefined): void {
    if (this.#closed) return
    for (const { token, hintHost, hintPort } of this.#daemons) {
      if (token !== exceptToken) this.#socket.send(Buffer.of(HINT_KINDS.indexOf(kind)), hintPort, hintHost, () => {})
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
