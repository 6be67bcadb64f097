/**
 * Who goes with an erasure, whoever was named, and what is theirs by their number and name. Pure.
 */
import { comparableName } from '../patients/person-name.ts'
import type { ErasureSubject, Person } from './erasure-rules.ts'

/** What a message says of whom it is for. */
export interface Recipient {
  contact: string
  name: string
}

/** Adds those who are neither known yet nor named with all who have their number. */
export function addPeople(subject: ErasureSubject, found: Person[]): void {
  const known = new Map(subject.people.map((person) => [keyOf(person), person]))
  for (const person of found) {
    if (subject.name === null && person.contact === subject.contact) continue
    const same = known.get(keyOf(person))
    if (!same) {
      known.set(keyOf(person), person)
      subject.people.push(person)
      continue
    }
    if (!person.isOfRecord) delete same.isOfRecord
    if (person.wasPatient) same.wasPatient = true
    same.patientId ??= person.patientId
  }
}

/** @returns whether a message is for the subject, or for somebody who has gone with it */
export function recipientTest(subject: ErasureSubject): (to: Recipient) => boolean {
  const gone = new Set(subject.people.map(keyOf))
  return ({ contact: written, name }) => {
    const contact = contactOf(written)
    const isNamed = subject.name === null || nameKey(name) === nameKey(subject.name)
    if ((contact === subject.contact && isNamed) || gone.has(keyOf({ contact, name }))) return true
    // Of another country's code it can't be said which digits are the number's: by the name as well it is the same person.
    const abroad = contact.slice(-CONTACT_DIGITS)
    const isTheirs = abroad === subject.contact && subject.name !== null && isNamed
    return isTheirs || gone.has(keyOf({ contact: abroad, name }))
  }
}

const CONTACT_DIGITS = 10

/** A message may be for the number with the country's code before it, a zero, or both. */
function contactOf(written: string): string {
  return /^(?:\+?0{0,2}910?|0)?([0-9]{10})$/.exec(written)?.[1] ?? written
}

/** A message's recipient has a name of up to so many characters. */
const RECIPIENT_NAME_CHARACTERS = 100

/** The same for names that are the same person's. */
export function nameKey(name: string): string {
  return comparableName([...name.trim()].slice(0, RECIPIENT_NAME_CHARACTERS).join(''))
}

const keyOf = ({ contact, name }: Recipient) => `${contact} ${nameKey(name)}`
