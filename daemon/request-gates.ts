/**
 * How many requests may be in flight in this daemon: one budget for healthy webhooks, one for those that fail or are slow.
 * No number of hanging endpoints can use up what the healthy ones need.
 *
 * Where a budget is too small for all, members take turns: whoever had nothing waiting before goes first, with a short one, so that
 * an event on a quiet webhook waits for no backlog. A backlog has long turns: what a lane sends in one go is removed from the
 * queue in one go. (The order of RFC 8290, with requests for bytes.) What it sends in its turn it reads when that is near, and no
 * more: how much is read ahead, and how much a delivery costs, does not depend on how many wait.
 */
import { LinkedLine, type Linked } from '../src/linked-line.ts'
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
/**
 * So many read for their turns while others have theirs; they come together when half of them have gone, and so read together. With
 * twice as many what is read waits for so long that it is moved to the old objects.
 */
const MOST_NEAR = 8

/** A member that has something to send. */
interface Sender extends Linked<Sender> {
  readonly member: GateMember
  /** How many requests are left of its turn; undefined: it had nothing waiting before. */
  left: number | undefined
}

type SenderLine = LinkedLine<Sender>

/** Members that wait, in the order of asking, each once. */
interface Waiting {
  /** Had nothing waiting before, or not more than a first turn. */
  readonly fresh: SenderLine
  /** In the middle of their turns. */
  readonly going: SenderLine
  /** Have had their turn, and are the next ones to have another. */
  readonly near: SenderLine
  /** Have had their turn. */
  readonly far: SenderLine
}

interface Gate {
  size: GateSize
  inFlight: number
  readonly waiting: Waiting
  /** Of those that are near, who was not ready at the last look. */
  late: Set<Sender>
}

function newGate(size: GateSize): Gate {
  const line = (): SenderLine => new LinkedLine<Sender>()
  return { size, inFlight: 0, waiting: { fresh: line(), going: line(), near: line(), far: line() }, late: new Set() }
}

/** So many wait that what they read ahead would stand there for long. */
function isCrowded({ fresh, going, far }: Waiting): boolean {
  return far.size > 0 || fresh.size + going.size > MOST_NEAR
}

export class RequestGates {
  readonly #gates: Record<GateName, Gate>
  /** Whoever has nothing to send is not in here. */
  readonly #senders = new Map<GateMember, Sender>()

  constructor(sizes: Record<GateName, GateSize>) {
    this.#gates = { healthy: newGate(sizes.healthy), retry: newGate(sizes.retry) }
  }

  /** @returns false when the gate is full; the member is pumped once when that changes */
  tryEnter(name: GateName, member: GateMember): boolean {
    const gate = this.#gates[name]
    const sender = this.#senderOf(member)
    if (gate.inFlight < gate.size.limit) {
      if (sender.line === gate.waiting.near) this.#beginTurn(gate, sender)
      gate.inFlight += 1
      sender.left = Math.max(0, (sender.left ?? FIRST_TURN) - 1)
      return true
    }
    this.#wait(gate, sender)
    return false
  }

  /** @param wantsMore the member has more to send, or may have, and goes on if its turn does */
  leave(name: GateName, member: GateMember, wantsMore: boolean): void {
    const gate = this.#gates[name]
    gate.inFlight -= 1
    if (wantsMore) this.#wait(gate, this.#senderOf(member))
    this.#admit(gate)
  }

  /**
   * Asked by a member that may have more to send than it has read.
   * @returns so many requests are to come before others have had their turns; 0: it waits for its turn from now on
   */
  share(name: GateName, member: GateMember): number {
    const gate = this.#gates[name]
    const sender = this.#senders.get(member)
    if (sender?.left === undefined || !isCrowded(gate.waiting)) return Infinity
    if (sender.left > 0) return sender.left
    this.#wait(gate, sender)
    return sender.line === gate.waiting.near ? gate.size.turn : 0
  }

  /** The member has nothing to send for now. */
  withdraw(name: GateName, member: GateMember): void {
    const sender = this.#senders.get(member)
    if (sender) this.#takeOut(this.#gates[name], sender)
  }

  /** The member has nothing to send and nothing in flight, or goes to the other gate. */
  forget(member: GateMember): void {
    const sender = this.#senders.get(member)
    if (!sender) return
    for (const gate of Object.values(this.#gates)) this.#takeOut(gate, sender)
    this.#senders.delete(member)
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
      const late = gate.waiting.near.values().filter(({ member }) => !member.isReady)
      for (const sender of late) if (gate.late.has(sender)) this.#beginTurn(gate, sender)
      gate.late = new Set(late)
    }
  }

  inFlight(name: GateName): number {
    return this.#gates[name].inFlight
  }

  #senderOf(member: GateMember): Sender {
    const known = this.#senders.get(member)
    if (known) return known
    const sender: Sender = { member, left: undefined, line: undefined, previous: undefined, next: undefined }
    this.#senders.set(member, sender)
    return sender
  }

  #wait(gate: Gate, sender: Sender): void {
    const { fresh, going, near, far } = gate.waiting
    const { left } = sender
    if (left === undefined) this.#putInto(fresh, sender)
    else if (left > 0) this.#putInto(going, sender)
    else if (sender.line !== near) {
      this.#putInto(far, sender)
      this.#fillNear(gate)
    }
  }

  /** Whoever stands there already keeps its place. */
  #putInto(line: SenderLine, sender: Sender): void {
    if (sender.line === line) return
    sender.line?.remove(sender)
    line.add(sender)
  }

  #takeOut(gate: Gate, sender: Sender): void {
    const { fresh, going, near, far } = gate.waiting
    if (near.remove(sender)) this.#fillNear(gate)
    else for (const line of [fresh, going, far]) line.remove(sender)
  }

  #fillNear({ waiting: { near, far } }: Gate): void {
    if (near.size > MOST_NEAR / 2) return
    for (let sender = far.first; sender && near.size < MOST_NEAR; sender = far.first) {
      this.#putInto(near, sender)
      sender.member.prepare()
    }
  }

  #beginTurn(gate: Gate, sender: Sender): void {
    sender.left = gate.size.turn
    if (gate.waiting.near.remove(sender)) this.#fillNear(gate)
  }

  /** One member a free slot: it takes what it may and asks again. */
  #admit(gate: Gate): void {
    // Each that waits now is asked once at most: one that has nothing to send any more takes no slot.
    let asked = gate.waiting.fresh.size + gate.waiting.going.size + gate.waiting.near.size
    for (; asked > 0 && gate.inFlight < gate.size.limit; asked--) this.#next(gate)?.pump()
  }

  #next(gate: Gate): GateMember | undefined {
    const { fresh, going, near } = gate.waiting
    const sender = fresh.shift() ?? going.shift()
    if (sender) return sender.member
    // Whoever is not ready yet goes on by itself when it is.
    for (let ready = near.first; ready; ready = ready.next) {
      if (!ready.member.isReady) continue
      this.#beginTurn(gate, ready)
      return ready.member
    }
    return undefined
  }
}
