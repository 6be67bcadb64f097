/**
 * Integrators who look after their webhooks: they register further ones, list them, delete them again, and bring back those
 * that were deleted because their endpoint failed for too long.
 */
import { monotonicMs } from '../../src/clock.ts'
import { EVENTS, type SoakAccount } from './soak-accounts.ts'
import type { Asked, CallsOptions, SoakCalls } from './soak-calls.ts'

/** Further webhooks that are there at a time. */
const KEPT = 40

export class WebhookCare {
  readonly #options: CallsOptions
  readonly #ask: SoakCalls['ask']
  readonly #further: { id: string; account: SoakAccount }[] = []
  /** Whose webhooks may be deleted by themselves. */
  readonly #failing: SoakAccount[]
  readonly #deactivated: { id: string; account: SoakAccount }[] = []
  /** When the last try to bring a webhook back ended, monotonic; Infinity: it is under way. A list from before is out of date. */
  readonly #triedAtMs = new Map<string, number>()
  #looks = 0
  #unknown = 0
  reactivated = 0

  constructor(options: CallsOptions, ask: SoakCalls['ask']) {
    this.#options = options
    this.#ask = ask
    this.#failing = options.world.webhooks.flatMap(({ account, fault }) => (fault ? [account] : []))
  }

  async step(account: SoakAccount, n: number, dueAtMs: number): Promise<void> {
    if (n % 4 === 0) return this.#subscribe(account, n, dueAtMs)
    if (n % 4 === 1) return this.#list('getAllEvents', account, dueAtMs).then(() => {})
    if (n % 4 === 2) return this.#delete(account, dueAtMs)
    return this.#reactivate(account, dueAtMs)
  }

  async #subscribe(account: SoakAccount, n: number, dueAtMs: number): Promise<void> {
    const body = {
      labID: account.lab,
      events: [EVENTS[n % EVENTS.length], 'lead.created'],
      endpoint: this.#options.receiver.urlOf(`further-${n}`),
      protocol: 'https',
    }
    const asked = { what: 'subscribe', method: 'POST', path: '/client/events/subscribe', account, body, planned: [200] }
    const answer = await this.#ask({ ...asked, kind: 'webhook', dueAtMs })
    if (answer?.status === 200) this.#further.push({ id: answer.body.data._id, account })
  }

  #list(operation: string, account: SoakAccount, dueAtMs: number) {
    const path = `/client/events/${operation}?labID=${account.lab}`
    return this.#ask({ what: operation, kind: 'webhook', dueAtMs, method: 'GET', path, account, planned: [200] })
  }

  /** The oldest of them; where there are few yet one that nobody has. */
  async #delete(account: SoakAccount, dueAtMs: number): Promise<void> {
    const oldest = this.#further.length > KEPT ? this.#further.shift()! : undefined
    const asked = oldest ?? { id: `unknown-${this.#unknown++}`, account }
    await this.#ask({ ...deletion(asked), dueAtMs, planned: [oldest ? 200 : 404] })
  }

  /** What the list of the deactivated named last, or else that list of an account whose endpoint fails. */
  async #reactivate(account: SoakAccount, dueAtMs: number): Promise<void> {
    const found = this.#deactivated.shift()
    if (found) {
      const path = `/client/events/reactivateEvent/${found.id}?labID=${found.account.lab}`
      const asked = { what: 'reactivate', kind: 'webhook' as const, method: 'PATCH', path, account: found.account }
      this.#triedAtMs.set(found.id, Infinity)
      const answer = await this.#ask({ ...asked, dueAtMs, planned: [200] })
      this.#triedAtMs.set(found.id, monotonicMs())
      if (answer?.status === 200) this.reactivated++
      return
    }
    const asked = this.#failing[this.#looks++ % this.#failing.length] ?? account
    const askedAtMs = monotonicMs()
    const answer = await this.#list('getDeactivatedEvents', asked, dueAtMs)
    for (const { _id } of answer?.body.data ?? []) {
      if ((this.#triedAtMs.get(_id) ?? -Infinity) >= askedAtMs) continue
      if (!this.#deactivated.some(({ id }) => id === _id)) this.#deactivated.push({ id: _id, account: asked })
    }
  }
}

/** Deletes a webhook of the account. */
export function deletion({ id, account }: { id: string; account: SoakAccount }): Omit<Asked, 'dueAtMs' | 'planned'> {
  const path = `/client/events/deleteEvent/${id}?labID=${account.lab}`
  return { what: 'delete', kind: 'webhook', method: 'DELETE', path, account }
}
