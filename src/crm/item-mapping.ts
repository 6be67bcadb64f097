/**
 * Giving unmapped items of an entry their place in the lab's catalogue.
 */
import { badRequest, mergeFaults, notFound, unknownId, type DomainError } from '../errors.ts'
import { isIdShaped } from '../ids.ts'
import { invalidState } from '../state-rules.ts'
import type { EntryCall } from './booking-actions.ts'
import { nextEntryState } from './booking-rules.ts'
import type { Entry, EntryItem } from './entry-rules.ts'
import { listCatalogueNames, lockEntry, updateEntry, updateEntryItem } from './staff-entries-repository.ts'

/** One item, counted from 1, and exactly one of the two ids. */
export interface ItemMapping {
  item: number
  test?: string | undefined
  package?: string | undefined
  price?: number | undefined
}

/**
 * @throws 400 for an item that the entry does not have or an id that its lab does not have, 404, 409 for an item that is
 * mapped already
 */
export async function mapEntryItems(call: EntryCall, mappings: ItemMapping[]): Promise<Entry> {
  const { trx, accountId, now } = call
  const entry = await lockEntry(trx, accountId, call.leadId)
  if (!entry) throw notFound('entry not found')
  const names = {
    test: await listCatalogueNames(trx, accountId, entry.labId, 'tests', idsOf(mappings, 'test')),
    package: await listCatalogueNames(trx, accountId, entry.labId, 'packages', idsOf(mappings, 'package')),
  }
  requireKnownItems(entry, mappings, names)
  nextEntryState('mapItems', entry)
  const items = [...entry.items]
  for (const { item: number, test, package: pack, price } of mappings) {
    const before = items[number - 1]!
    if (before.itemId !== null) throw invalidState(`item ${number} is mapped already`)
    const kind = test === undefined ? 'package' : 'test'
    const itemId = (test ?? pack)!
    const mapped: EntryItem = { kind, itemId, name: names[kind].get(itemId)!, price: price ?? before.price }
    items[number - 1] = mapped
    await updateEntryItem(trx, entry.id, number - 1, mapped)
  }
  const changed: Entry = { ...entry, version: entry.version + 1, items }
  await updateEntry(trx, changed, now)
  return changed
}

function idsOf(mappings: ItemMapping[], field: 'test' | 'package'): string[] {
  return mappings.flatMap((mapping) => (mapping[field] === undefined ? [] : [mapping[field]])).filter(isIdShaped)
}

function requireKnownItems(
  entry: Entry,
  mappings: ItemMapping[],
  names: Record<'test' | 'package', Map<string, string>>,
): void {
  const faults: DomainError[] = []
  mappings.forEach((mapping, index) => {
    const at = `items.${index}`
    if (!entry.items[mapping.item - 1]) {
      const fault = `must be at most ${entry.items.length}: the entry has no more items`
      faults.push(badRequest(`${at}.item ${fault}`, 'unknown_item', `${at}.item`, fault))
    }
    for (const field of ['test', 'package'] as const) {
      const id = mapping[field]
      if (id !== undefined && !names[field].has(id)) faults.push(unknownId(field, id, `${at}.${field}`))
    }
  })
  if (faults.length > 0) throw mergeFaults(faults)
}
