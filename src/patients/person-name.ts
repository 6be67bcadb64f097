/**
 * Names of people, as they are written and as they are compared. Pure.
 */

/** First and last name without outer blanks; what is blank is left out. */
export function fullName(firstName: string, lastName: string | null): string {
  const parts = [firstName.trim(), (lastName ?? '').trim()].filter((part) => part !== '')
  // A name is never empty, if need be it is a blank.
  return parts.join(' ') || firstName
}

/** The same for names that are the same: one person is written in several ways, with other capitals and blanks. */
export function comparableName(name: string | null | undefined): string {
  return (name ?? '').trim().replace(/\s+/g, ' ').toLowerCase()
}
