/**
 * A contact's one-time passwords and text messages, of a patient who is erased.
 */
import type { Knex } from 'knex'
import { isSealedUnder, unseal, type Keys } from '../crypto.ts'
import { lockOtpContact } from '../patients/otp-repository.ts'
import { contactHash } from '../patients/otp-rules.ts'
import { giveUpSms } from '../patients/sms-repository.ts'

export interface LoginOwner {
  accountId: string
  contact: string
  /** Others of the account have the contact: its login stays, without the sessions that it has. */
  isShared: boolean
}

/**
 * Ends every session, code and lock of the contact, and takes the number. The row stays with its keyed hash, for the limits of
 * the day, and is purged with them.
 * @returns logins: 1 where there was one; textMessages: those with its code that had not gone out
 */
export async function eraseLogin(
  trx: Knex.Transaction,
  keys: Keys,
  { accountId, contact, isShared }: LoginOwner,
  now: Date,
): Promise<{ logins: number; textMessages: number }> {
  const hash = contactHash(keys, accountId, contact)
  const known = await lockOtpContact(trx, accountId, hash)
  if (!known) return { logins: 0, textMessages: 0 }
  await trx('otp_codes').where({ contact_hash: hash }).whereNull('used_at').update({ used_at: now })
  await trx('otp_contacts')
    .where({ contact_hash: hash, account_id: accountId })
    .update({
      login_epoch: trx.raw('login_epoch + 1'),
      code_id: null,
      ...(isShared ? {} : { contact_sealed: Buffer.alloc(0), failures_in_row: 0, locked_until: null }),
    })
  const textMessages = known.codeId === null ? 0 : await giveUpSms(trx, known.codeId)
  return { logins: 1, textMessages }
}

/**
 * Text messages that still wait. Whom they are for is encrypted, so each is opened: they are few, and live for minutes. One that does
 * not open, because the key was lost, may be theirs, and nobody can send it.
 */
export async function eraseTextMessages(
  trx: Knex.Transaction,
  keys: Keys,
  accountId: string,
  contacts: Set<string>,
): Promise<number> {
  if (contacts.size === 0) return 0
  const rows = await trx('sms_messages').whereNotNull('due_at').where({ account_id: accountId }).select('id', 'content')
  const isTheirs = ({ id, content }: { id: string; content: Buffer }) => {
    if (!isSealedUnder(keys, content)) return true
    return contacts.has(JSON.parse(unseal(keys, content, `sms:${id}`).toString('utf8')).to)
  }
  const theirs = rows.filter(isTheirs).map(({ id }) => id)
  return trx('sms_messages').whereIn('id', theirs).update({ content: null, due_at: null })
}
