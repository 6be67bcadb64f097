/**
 * What the lab itself does all day: most of its events are recorded as the service records them, in a transaction of their own,
 * and each tenth is a bill by the operator API.
 */
import { COMMIT } from '../../db/batch.ts'
import { monotonicMs } from '../../src/clock.ts'
import { recordEventStatements } from '../../src/events/events-repository.ts'
import { newId, publicEventId } from '../../src/ids.ts'
import { BODY_BYTES } from '../bench/sizes.ts'
import { DaemonHints } from '../../src/events/daemon-hints.ts'
import type { CrashArena } from '../crash/crash-arena.ts'
import type { Ledger } from '../crash/ledger.ts'
import type { SoakAccount } from './soak-accounts.ts'
import type { SoakCalls } from './soak-calls.ts'

const BILL_EACH = 10
/** What an API would have answered. */
const UNAVAILABLE = 503

export class LabEvents {
  readonly #arena: CrashArena
  readonly #ledger: Ledger
  readonly #accounts: SoakAccount[]
  readonly #calls: SoakCalls
  readonly #hints: DaemonHints
  #count = 0

  constructor(arena: CrashArena, ledger: Ledger, accounts: SoakAccount[], calls: SoakCalls) {
    this.#arena = arena
    this.#ledger = ledger
    this.#accounts = accounts
    this.#calls = calls
    this.#hints = new DaemonHints(arena.database.knex)
  }

  close(): void {
    this.#hints.close()
  }

  async next(dueAtMs: number): Promise<void> {
    const n = this.#count++
    const account = this.#accounts[n % this.#accounts.length]!
    // The turns of the accounts are a multiple of the tenth: each has its bills.
    if ((n + Math.floor(n / this.#accounts.length)) % BILL_EACH === 0) return this.#calls.bill(account, dueAtMs)
    const id = newId(this.#arena.clock.nowMs())
    const sentAtMs = monotonicMs()
    const fault = await this.#record(id, account).catch((error: Error) => error)
    const endedAtMs = monotonicMs()
    // Where the database is away it is not known whether it was recorded.
    const { status, leadId } = fault ? { status: UNAVAILABLE, leadId: null } : { status: 200, leadId: id }
    const refused = { what: 'an event of the lab', status: UNAVAILABLE, pid: 0, sentAtMs, endedAtMs }
    if (fault) this.#calls.unplanned.push({ ...refused, details: fault.message })
    else this.#hints.send()
    const line = { request: `lab-${n}`, account: account.account, pid: 0, sentAtMs, endedAtMs, status, leadId }
    this.#ledger.append('client', line)
    this.#calls.clients.push(line)
  }

  async #record(id: string, { account, lab }: SoakAccount): Promise<void> {
    const event = {
      id,
      accountId: account,
      labId: lab,
      type: 'report.completed' as const,
      subjectId: id,
      corporateId: null,
      doctorId: null,
      hospitalId: null,
      body: Buffer.from(JSON.stringify({ id: publicEventId(id), pad: 'x'.repeat(BODY_BYTES - 50) })),
    }
    await this.#arena.database.batch.transaction((send) => send([...recordEventStatements([event]), COMMIT]))
  }
}
