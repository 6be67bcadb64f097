/**
 * How many requests may be in flight in this daemon: one budget for healthy webhooks, one for those that fail or are slow.
 * No number of hanging endpoints can use up what the healthy ones need.
 *
 * Where a budget is too small for all, members take turns: whoever had nothing waiting before goes first, with a short one, so that
 * an event on a quiet webhook waits for no backlog. A backlog has long turns: what a lane sends in one go is removed from the
 * queue in one go. (The order of RFC 8290, with requests for bytes.) What it sends in its turn it reads when that is near, and no
 * more: how much is read ahead, and how much a delivery costs, does not depend on how many wait.
 */
import type { GateSize } from './gate-size.ts'

export type GateName = 'healthy' | 'retry'

export interface GateMember {
  /** Called when a slot came free that this member had asked for. */
  pump(): void
  /** Its turn is near: time to read what it is to send then. */
  prepare(): void
  /** It has something to send. */
  readonly isReady: boolean
}

/** Requests of a member that had nothing waiting before: a small burst goes before all backlogs. */
const FIRST_TURN = 10
/** So many read for their turns while others have theirs; they come together when half of them have gone, and so read together. */
const MOST_NEAR = 16

/** Members that wait, in the order of asking, each once. */
interface Waiting {
  /** Had nothing waiting before, or not more than a first turn. */
  readonly fresh: Set<GateMember>
  /** In the middle of their turns. */
  readonly going: Set<GateMember>
  /** Have had their turn, and are the next ones to have another. */
  readonly near: Set<GateMember>
  /** Have had their turn. */
  readonly far: Set<GateMember>
}

interface Gate {
  size: GateSize
  inFlight: number
  readonly waiting: Waiting
  /** Of those that are near, who was not ready at the last look. */
  late: Set<GateMember>
}

function newGate(size: GateSize): Gate {
  const waiting = { fresh: new Set<GateMember>(), going: new Set<GateMember>(), near: new Set<GateMember>(), far: new Set<GateMember>() } // prettier-ignore
  return { size, inFlight: 0, waiting, late: new Set() }
}

/** So many wait that what they read ahead would stand there for long. */
function isCrowded({ fresh, going, far }: Waiting): boolean {
  return far.size > 0 || fresh.size + going.size > MOST_NEAR
}

export class RequestGates {
  readonly #gates: Record<GateName, Gate>
  /** How many requests are left of each member's turn; it is not in here while it has nothing to send. */
  readonly #left = new Map<GateMember, number>()

  constructor(sizes: Record<GateName, GateSize>) {
    this.#gates = { healthy: newGate(sizes.healthy), retry: newGate(sizes.retry) }
  }

  /** @returns false when the gate is full; the member is pumped once when that changes */
  tryEnter(name: GateName, member: GateMember): boolean {
    const gate = this.#gates[name]
    if (gate.inFlight < gate.size.limit) {
      if (gate.waiting.near.has(member)) this.#beginTurn(gate, member)
      gate.inFlight += 1
      this.#left.set(member, Math.max(0, (this.#left.get(member) ?? FIRST_TURN) - 1))
      return true
    }
    this.#wait(gate, member)
    return false
  }

  /** @param wantsMore the member has more to send, or may have, and goes on if its turn does */
  leave(name: GateName, member: GateMember, wantsMore: boolean): void {
    const gate = this.#gates[name]
    gate.inFlight -= 1
    if (wantsMore) this.#wait(gate, member)
    this.#admit(gate)
  }

  /**
   * Asked by a member that may have more to send than it has read.
   * @returns so many requests are to come before others have had their turns; 0: it waits for its turn from now on
   */
  share(name: GateName, member: GateMember): number {
    const gate = this.#gates[name]
    const left = this.#left.get(member)
    if (left === undefined || !isCrowded(gate.waiting)) return Infinity
    if (left > 0) return left
    this.#wait(gate, member)
    return gate.waiting.near.has(member) ? gate.size.turn : 0
  }

  /** The member has nothing to send for now. */
  withdraw(name: GateName, member: GateMember): void {
    const gate = this.#gates[name]
    const { fresh, going, near, far } = gate.waiting
    for (const some of [fresh, going, far]) some.delete(member)
    if (near.delete(member)) this.#fillNear(gate)
  }

  /** The member has nothing to send, and nothing in flight. */
  rest(name: GateName, member: GateMember): void {
    this.#left.delete(member)
    this.withdraw(name, member)
  }

  /**
   * A lane changed sides with this many requests in flight. The budget that it joins may be exceeded by that: what is
   * under way can't be taken back, but nothing new starts until it is below its limit.
   */
  move(from: GateName, to: GateName, requests: number): void {
    this.#gates[from].inFlight -= requests
    this.#gates[to].inFlight += requests
    this.#admit(this.#gates[from])
  }

  /** What is under way above a lower limit ends by itself; nothing new starts until it is below. */
  resize(name: GateName, size: GateSize): void {
    const gate = this.#gates[name]
    gate.size = size
    this.#admit(gate)
  }

  /** Called four times a second. Who takes long to get ready keeps its turn, and no longer its place. */
  look(): void {
    for (const gate of Object.values(this.#gates)) {
      const late = [...gate.waiting.near].filter(({ isReady }) => !isReady)
      for (const member of late) if (gate.late.has(member)) this.#beginTurn(gate, member)
      gate.late = new Set(late)
    }
  }

  forget(member: GateMember): void {
    for (const name of Object.keys(this.#gates)) this.rest(name as GateName, member)
  }

  inFlight(name: GateName): number {
    return this.#gates[name].inFlight
  }

  #wait(gate: Gate, member: GateMember): void {
    const { fresh, going, near, far } = gate.waiting
    const left = this.#left.get(member)
    if (left === undefined) fresh.add(member)
    else if (left > 0) going.add(member)
    else if (!near.has(member)) {
      far.add(member)
      this.#fillNear(gate)
    }
  }

  #fillNear({ waiting: { near, far } }: Gate): void {
    if (near.size > MOST_NEAR / 2) return
    for (const member of far) {
      if (near.size >= MOST_NEAR) return
      far.delete(member)
      near.add(member)
      member.prepare()
    }
  }

  #beginTurn(gate: Gate, member: GateMember): void {
    this.#left.set(member, gate.size.turn)
    gate.waiting.near.delete(member)
    this.#fillNear(gate)
  }

  /** One member a free slot: it takes what it may and asks again. */
  #admit(gate: Gate): void {
    // Each that waits now is asked once at most: one that has nothing to send any more takes no slot.
    let asked = gate.waiting.fresh.size + gate.waiting.going.size + gate.waiting.near.size
    for (; asked > 0 && gate.inFlight < gate.size.limit; asked--) this.#next(gate)?.pump()
  }

  #next(gate: Gate): GateMember | undefined {
    const { fresh, going, near } = gate.waiting
    for (const some of [fresh, going]) {
      for (const member of some) {
        some.delete(member)
        return member
      }
    }
    // Whoever is not ready yet goes on by itself when it is.
    for (const member of near) {
      if (!member.isReady) continue
      this.#beginTurn(gate, member)
      return member
    }
    return undefined
  }
}
