/**
 * Which webhooks a call may see, and what registering one more means. Pure.
 */
import type { AccountMode } from '../accounts/accounts-repository.ts'
import type { NamedParty } from '../catalogue/party-rules.ts'
import { conflict, type DomainError } from '../errors.ts'
import type { EventType } from '../events/event-types.ts'

/**
 * What of a lab's webhooks a call reaches: all of them on a catch-all account, one party's on a party-scoped one. There a
 * webhook without a party (from before a switch of mode) is out of reach; the operator alone works with it. `every_party` is
 * what a call reaches there that may leave the party out.
 */
export type WebhookScope = 'whole_lab' | 'every_party' | { corporateId: string } | { organizationId: string }

export function scopeOf(party: NamedParty | undefined): WebhookScope {
  if (!party) return 'whole_lab'
  return party.field === 'corporateUser' ? { corporateId: party.id } : { organizationId: party.id }
}

/** The scope of a call whose party is optional on a party-scoped account. */
export function scopeOfOptional(mode: AccountMode, party: NamedParty | undefined): WebhookScope {
  return !party && mode === 'party_scoped' ? 'every_party' : scopeOf(party)
}

/** Names given twice count once; the order is the sender's. */
export function mergeEvents(events: EventType[]): EventType[] {
  return [...new Set(events)]
}

/**
 * The 409 of a party that has another active webhook for some of the events.
 * @param field of the call, the one that the clash comes from
 */
export function duplicateWebhook(taken: EventType[], field: 'events' | '_id'): DomainError {
  const names = taken.join(', ')
  const remedy = field === '_id' ? '; delete that one first' : ''
  return conflict(`the party already has an active webhook for ${names}${remedy}`, 'duplicate_webhook', {
    fields: [{ field, message: `clashes with another webhook on ${names}` }],
  })
}

/**
 * A sentence for each event that will arrive more than once.
 * @param others how many other active webhooks have the event, by event
 */
export function overlapWarnings(events: EventType[], others: ReadonlyMap<EventType, Overlap>): string[] {
  return events.flatMap((event) => {
    const { all = 0, bound = 0 } = others.get(event) ?? {}
    if (all === 0) return []
    const whose = all === 1 ? 'another active webhook' : `${all} other active webhooks`
    const whoseParty =
      bound === 0 ? '' : all === 1 ? ', where it is of its party' : `, ${bound} of them where it is of their party`
    return [`${event} is also delivered to ${whose} of this lab${whoseParty}`]
  })
}

/** Other webhooks that have an event, and how many of them have a party. */
export interface Overlap {
  all: number
  bound: number
}
