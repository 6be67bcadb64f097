/**
 * How many requests may be in flight in this daemon: one budget for healthy webhooks, one for those that fail or are slow.
 * No number of hanging endpoints can use up what the healthy ones need.
 *
 * Where a budget is too small for all, members take turns: whoever had nothing waiting before goes first, with a short one, so that
 * an event on a quiet webhook waits for no backlog. A backlog has long turns: what a lane sends in one go is removed from the
 * queue in one go. (The order of RFC 8290, with requests for bytes.)
 */
export type GateName = 'healthy' | 'retry'

export interface GateMember {
  /** Called when a slot came free that this member had asked for. */
  pump(): void
}

/** Requests of a member that had nothing waiting before: a small burst goes before all backlogs. */
const FIRST_TURN = 10

/** Members that wait, in the order of asking, each once. */
interface Waiting {
  /** Had nothing waiting before, or not more than a first turn. */
  readonly fresh: Set<GateMember>
  /** In the middle of their turns. */
  readonly going: Set<GateMember>
  /** Have had their turn. */
  readonly last: Set<GateMember>
}

interface Gate {
  limit: number
  /** Requests of a turn. */
  readonly turn: number
  inFlight: number
  readonly waiting: Waiting
}

function newGate(limit: number, turn: number): Gate {
  return { limit, turn, inFlight: 0, waiting: { fresh: new Set(), going: new Set(), last: new Set() } }
}

/** Long enough for the server to remove what was sent by one walk through the queue; longer ones make the others wait longer. */
const HEALTHY_TURN = 20
/** Of those that fail or are slow each request may take ten seconds. */
const RETRY_TURN = 1

export class RequestGates {
  readonly #gates: Record<GateName, Gate>
  /** How many requests are left of each member's turn; it is not in here while it has nothing to send. */
  readonly #left = new Map<GateMember, number>()

  /** @param limits requests in flight of each kind */
  constructor(limits: Record<GateName, number>) {
    this.#gates = {
      healthy: newGate(limits.healthy, HEALTHY_TURN),
      retry: newGate(limits.retry, RETRY_TURN),
    }
  }

  /** @returns false when the gate is full; the member is pumped once when that changes */
  tryEnter(name: GateName, member: GateMember): boolean {
    const gate = this.#gates[name]
    const left = this.#left.get(member)
    if (gate.inFlight < gate.limit) {
      gate.inFlight += 1
      this.#left.set(member, Math.max(0, (left ?? FIRST_TURN) - 1))
      return true
    }
    this.#wait(gate, member, left)
    return false
  }

  /** @param wantsMore the member has more to send, and goes on if its turn does */
  leave(name: GateName, member: GateMember, wantsMore: boolean): void {
    const gate = this.#gates[name]
    gate.inFlight -= 1
    if (wantsMore) this.#wait(gate, member, this.#left.get(member))
    this.#admit(gate)
  }

  /** The member has nothing to send, and nothing in flight. */
  rest(member: GateMember): void {
    this.#left.delete(member)
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
  setLimit(name: GateName, limit: number): void {
    const gate = this.#gates[name]
    gate.limit = limit
    this.#admit(gate)
  }

  forget(member: GateMember): void {
    this.#left.delete(member)
    for (const { waiting } of Object.values(this.#gates)) {
      for (const some of [waiting.fresh, waiting.going, waiting.last]) some.delete(member)
    }
  }

  inFlight(name: GateName): number {
    return this.#gates[name].inFlight
  }

  #wait({ waiting }: Gate, member: GateMember, left: number | undefined): void {
    if (left === undefined) waiting.fresh.add(member)
    else if (left > 0) waiting.going.add(member)
    else waiting.last.add(member)
  }

  /** One member a free slot: it takes what it may and asks again. */
  #admit(gate: Gate): void {
    // Each that waits now is asked once at most: one that has nothing to send any more takes no slot.
    let asked = gate.waiting.fresh.size + gate.waiting.going.size + gate.waiting.last.size
    for (; asked > 0 && gate.inFlight < gate.limit; asked--) this.#next(gate)?.pump()
  }

  #next({ waiting: { fresh, going, last }, turn }: Gate): GateMember | undefined {
    for (const some of [fresh, going]) {
      for (const member of some) {
        some.delete(member)
        return member
      }
    }
    for (const member of last) {
      last.delete(member)
      this.#left.set(member, turn)
      return member
    }
    return undefined
  }
}
