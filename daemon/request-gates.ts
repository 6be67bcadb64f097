/**
 * How many requests may be in flight in this daemon: one budget for healthy webhooks, one for those that fail or are slow.
 * No number of hanging endpoints can use up what the healthy ones need.
 */
export type GateName = 'healthy' | 'retry'

export interface GateMember {
  /** Called when a slot came free that this member had asked for. */
  pump(): void
}

interface Gate {
  readonly limit: number
  inFlight: number
  /** In the order of asking; a Set so that a lane waits once. */
  readonly waiting: Set<GateMember>
}

export class RequestGates {
  readonly #gates: Record<GateName, Gate>

  /** @param limits requests in flight of each kind */
  constructor(limits: Record<GateName, number>) {
    this.#gates = {
      healthy: { limit: limits.healthy, inFlight: 0, waiting: new Set() },
      retry: { limit: limits.retry, inFlight: 0, waiting: new Set() },
    }
  }

  /** @returns false when the gate is full; the member is pumped once when that changes */
  tryEnter(name: GateName, member: GateMember): boolean {
    const gate = this.#gates[name]
    if (gate.inFlight < gate.limit) {
      gate.inFlight += 1
      return true
    }
    gate.waiting.add(member)
    return false
  }

  leave(name: GateName): void {
    this.#gates[name].inFlight -= 1
    this.#admit(name)
  }

  /**
   * A lane changed sides with this many requests in flight. The budget that it joins may be exceeded by that: what is
   * under way can't be taken back, but nothing new starts until it is below its limit.
   */
  move(from: GateName, to: GateName, requests: number): void {
    this.#gates[from].inFlight -= requests
    this.#gates[to].inFlight += requests
    this.#admit(from)
  }

  forget(member: GateMember): void {
    this.#gates.healthy.waiting.delete(member)
    this.#gates.retry.waiting.delete(member)
  }

  inFlight(name: GateName): number {
    return this.#gates[name].inFlight
  }

  /** One member a free slot: it takes what it may and asks again, behind the others. */
  #admit(name: GateName): void {
    const gate = this.#gates[name]
    let free = gate.limit - gate.inFlight
    for (const member of gate.waiting) {
      if (free <= 0) return
      gate.waiting.delete(member)
      member.pump()
      free = Math.min(free - 1, gate.limit - gate.inFlight)
    }
  }
}
