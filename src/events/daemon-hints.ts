/**
 * A datagram to every daemon that says "there is something to do". For speed only: it may be lost, doubled or sent by
 * anyone, and the daemons find everything without it.
 */
import { createSocket, type Socket, type SocketOptions } from 'node:dgram'
import { lookup } from 'node:dns'
import { isIP } from 'node:net'
import type { Knex } from 'knex'
import { monotonicMs } from '../clock.ts'
import { listDaemons, type DaemonRow } from '../deliveries/daemons-repository.ts'
import { isIdShaped } from '../ids.ts'

const REFRESH_MS = 1000
/** One datagram to each daemon in this time, and one for what comes meanwhile; more only where it names lanes, of which no other tells. */
const SPACING_MS = 1
const ID_LENGTH = 26
/** Of the lanes that got something, in one datagram: no more than goes over any network in one piece. */
const LANES_NAMED = 40
/** Of more than that none is named. */
const MOST_LANES_NAMED = 200
/** What is not committed yet is told of only where nothing was for so long: hints that follow each other closely go together anyhow. */
const QUIET_MS = 4
/** Behind the name of what is not committed yet: for a daemon that does not know of that, it names nothing. */
const NOT_YET = '.'

/** A datagram's first byte is the place in this list: a daemon need not look at its lanes for an event that nobody has routed yet. */
export const HINT_KINDS = ['events', 'lanes', 'settings', 'committing'] as const

export type HintKind = (typeof HINT_KINDS)[number]

export interface Hint {
  kind: HintKind
  /** Of an event that waits for its fan-out, it is said. */
  eventId?: string | undefined
  /** Of lanes that got something, it is said; undefined: any may have. */
  webhookIds?: string[] | undefined
}

export function hintDatagram({ kind, eventId = '', webhookIds = [] }: Hint): Buffer {
  const mark = kind === 'committing' ? NOT_YET : ''
  return Buffer.from(String.fromCharCode(HINT_KINDS.indexOf(kind)) + eventId + webhookIds.join('') + mark, 'latin1')
}

/** Whatever was sent: what can't be an id counts as none. */
export function readHint(datagram: Buffer): Hint {
  const kind = HINT_KINDS[datagram[0] ?? 0] ?? 'events'
  if (kind === 'committing') return readForetold(datagram.toString('latin1', 1))
  const ids = datagram.toString('latin1', 1).match(EACH_ID) ?? []
  const isNamed = ids.length * ID_LENGTH === datagram.length - 1 && ids.length <= LANES_NAMED && ids.every(isIdShaped)
  if (!isNamed || ids.length === 0) return { kind }
  if (kind === 'lanes') return { kind, webhookIds: ids }
  return kind === 'events' && ids.length === 1 ? { kind, eventId: ids[0] } : { kind }
}

const EACH_ID = /.{26}/gs

/** Without the name of what is foretold there is nothing to do before it is committed, of which another hint tells. */
function readForetold(name: string): Hint {
  const eventId = name.slice(0, ID_LENGTH)
  return isIdShaped(eventId) && name === eventId + NOT_YET ? { kind: 'committing', eventId } : { kind: 'events' }
}

export interface HintOptions {
  /** One that waits; others may as well. */
  eventId?: string | undefined
  /** Of lanes that got something. */
  webhookIds?: string[]
  /** The sender's own row. */
  exceptToken?: string
}

/** For an address there is nothing to look up. Node would send it only behind all that was begun: the request's whole answer. */
const lookUpAtOnce: SocketOptions['lookup'] = (host, options, callback) => {
  const family = isIP(host)
  if (family > 0) callback(null, host, family)
  else lookup(host, options, callback)
}

export class DaemonHints {
  readonly #knex: Knex
  readonly #socket: Socket
  #daemons: DaemonRow[] = []
  #readAtMs = -Infinity
  #reading: Promise<void> | undefined
  #sentAtMs = -Infinity
  /** What came too soon for a datagram of its own, with the event where there is only one. */
  readonly #late = new Map<HintKind, string | undefined>()
  #closed = false

  constructor(knex: Knex) {
    this.#knex = knex
    this.#socket = createSocket({ type: 'udp4', lookup: lookUpAtOnce })
    this.#socket.on('error', () => {})
    this.#socket.unref()
  }

  /**
   * Returns at once. Call it after the commit.
   * @param kind `events`: something waits for its fan-out; `lanes`: lanes that others own got something to send;
   *   `settings`: somebody waits until a lane's owner has read its settings again; `committing`: an event that is on its way to the
   *   database together with its COMMIT, of which `events` tells when that has ended
   */
  send(kind: HintKind = 'events', options: HintOptions = {}): void {
    const nowMs = monotonicMs()
    if (this.#closed) return
    if (kind === 'committing') {
      if (nowMs - this.#sentAtMs >= QUIET_MS) this.#transmit(kind, options)
      return
    }
    if (!options.webhookIds && nowMs - this.#sentAtMs < SPACING_MS) return this.#sendLate(kind, options.eventId)
    this.#sentAtMs = nowMs
    if (this.#readAtMs > -Infinity) this.#transmit(kind, options)
    if (nowMs - this.#readAtMs <= REFRESH_MS) return
    const first = this.#readAtMs === -Infinity
    void this.#refresh().then(() => {
      if (first) this.#transmit(kind, options)
    })
  }

  /** A daemon that was told a moment ago may have looked before this one's commit. */
  #sendLate(kind: HintKind, eventId: string | undefined): void {
    const isFirst = this.#late.size === 0
    this.#late.set(kind, this.#late.has(kind) ? undefined : eventId)
    if (!isFirst) return
    const sendAll = () => {
      const late = [...this.#late]
      this.#late.clear()
      for (const [lateKind, lateEventId] of late) this.send(lateKind, { eventId: lateEventId })
    }
    setTimeout(sendAll, SPACING_MS).unref()
  }

  close(): void {
    if (this.#closed) return
    this.#closed = true
    this.#socket.close()
  }

  #transmit(kind: HintKind, { eventId, webhookIds = [], exceptToken }: HintOptions): void {
    if (this.#closed) return
    const datagrams = inParts(webhookIds).map((part) => hintDatagram({ kind, eventId, webhookIds: part }))
    for (const { token, hintHost, hintPort } of this.#daemons) {
      if (token === exceptToken) continue
      for (const datagram of datagrams) this.#socket.send(datagram, hintPort, hintHost, () => {})
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

function inParts(webhookIds: string[]): string[][] {
  if (webhookIds.length === 0 || webhookIds.length > MOST_LANES_NAMED) return [[]]
  const parts: string[][] = []
  for (let at = 0; at < webhookIds.length; at += LANES_NAMED) parts.push(webhookIds.slice(at, at + LANES_NAMED))
  return parts
}
