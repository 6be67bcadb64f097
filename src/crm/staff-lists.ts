/**
 * What the lists for staff have in common. Pure.
 */
import { isIdShaped } from '../ids.ts'

/** Whether every id that a filter names can be one at all: no row has one that can't. */
export function areIdsShaped(...ids: (string | undefined)[]): boolean {
  return ids.every((id) => id === undefined || isIdShaped(id))
}
