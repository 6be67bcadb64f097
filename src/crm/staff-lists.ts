/**
 * What the lists for staff have in common. Pure.
 */
import { isIdShaped } from '../ids.ts'
import { invalidCursor, type PageRequest } from '../paging.ts'

/**
 * The id after which a page begins.
 * @throws 400 for a cursor that holds none
 */
export function afterIdOf({ after }: PageRequest): string | undefined {
  const id = after?.at(-1)
  if (id === undefined || isIdShaped(id)) return id
  throw invalidCursor()
}

/** Whether every id that a filter names can be one at all: no row has one that can't. */
export function areIdsShaped(...ids: (string | undefined)[]): boolean {
  return ids.every((id) => id === undefined || isIdShaped(id))
}
