/**
 * Which patient a call is for, by the `patient-authorization` header alone.
 */
import type { Knex } from 'knex'
import { unseal, type Keys } from '../crypto.ts'
import { findOtpContact } from './otp-repository.ts'
import { contactSealName } from './otp-rules.ts'
import { invalidPatientToken, type PatientTokens } from './patient-token.ts'

/** A patient who is logged in. */
export interface PatientSession {
  /** 10 digits. */
  contact: string
}

/** Any number of spaces (RFC 9110 11.4). Ours have about 400 characters; what is longer is not worth a signature check. */
const BEARER = /^Bearer +([A-Za-z0-9._-]{1,2048})$/i

/** @returns what the header has for a token, if it is written as one */
export function patientTokenOf(header: string | string[] | undefined): string | undefined {
  return typeof header === 'string' ? BEARER.exec(header)?.[1] : undefined
}

/** @throws 401 unless the header carries the token of this contact's last login in this account */
export async function authenticatePatient(
  deps: { knex: Knex; keys: Keys; patientTokens: PatientTokens },
  accountId: string,
  header: string | string[] | undefined,
): Promise<PatientSession> {
  const token = patientTokenOf(header)
  const claims = token === undefined ? undefined : await deps.patientTokens.verify(token)
  if (claims?.accountId !== accountId) throw invalidPatientToken()
  const contact = await findOtpContact(deps.knex, accountId, claims.contactHash)
  if (contact?.loginEpoch !== claims.loginEpoch) throw invalidPatientToken()
  return { contact: unseal(deps.keys, contact.contactSealed, contactSealName(contact.hash)).toString('utf8') }
}
