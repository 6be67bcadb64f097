/**
 * Contacts that ask for one-time passwords, their codes and tokens. Everything about a contact is decided under the lock on
 * its row in `otp_contacts`.
 */
import type { Knex } from 'knex'
import type { OtpCode, OtpContact } from './otp-rules.ts'

/**
 * The contact's row, locked, made where it is missing. The insert that changes nothing takes the row's exclusive lock at
 * once: two first requests wait for each other instead of meeting in a deadlock.
 */
export async function claimOtpContact(
  trx: Knex.Transaction,
  contact: { hash: Buffer; accountId: string; contactSealed: Buffer },
  now: Date,
): Promise<OtpContact> {
  await trx('otp_contacts')
    .insert({
      contact_hash: contact.hash,
      account_id: contact.accountId,
      contact_sealed: contact.contactSealed,
      created_at: now,
    })
    .onConflict()
    .merge(['account_id', 'contact_sealed'])
  return (await lockOtpContact(trx, contact.accountId, contact.hash))!
}

/** Locks the contact's row: of several tries at once each sees what the one before it has done. */
export async function lockOtpContact(
  trx: Knex.Transaction,
  accountId: string,
  hash: Buffer,
): Promise<OtpContact | undefined> {
  const row = await trx('otp_contacts').where({ contact_hash: hash, account_id: accountId }).forUpdate().first()
  return row && toContact(row)
}

export async function findOtpContact(knex: Knex, accountId: string, hash: Buffer): Promise<OtpContact | undefined> {
  const row = await knex('otp_contacts').where({ contact_hash: hash, account_id: accountId }).first()
  return row && toContact(row)
}

/** Call under the contact's lock. */
export async function updateOtpContact(
  trx: Knex.Transaction,
  accountId: string,
  hash: Buffer,
  changes: Partial<Pick<OtpContact, 'codeId' | 'failuresInRow' | 'lockedUntil' | 'loginEpoch'>>,
): Promise<void> {
  await trx('otp_contacts').where({ contact_hash: hash, account_id: accountId }).update({
    code_id: changes.codeId,
    failures_in_row: changes.failuresInRow,
    locked_until: changes.lockedUntil,
    login_epoch: changes.loginEpoch,
  })
}

export async function insertOtpCode(trx: Knex.Transaction, contactHash: Buffer, code: OtpCode): Promise<void> {
  await trx('otp_codes').insert({
    id: code.id,
    contact_hash: contactHash,
    code_hash: code.codeHash,
    tries: code.tries,
    sent_at: code.sentAt,
    expires_at: code.expiresAt,
    used_at: code.usedAt,
  })
}

/**
 * The contact's codes that were sent after that time, and the one that is alive. Locked, though the contact's row is already: MariaDB gives
 * up the lock of a row that was just inserted a moment before it shows what came with it.
 */
export async function listOtpCodes(trx: Knex.Transaction, contact: OtpContact, sentAfter: Date): Promise<OtpCode[]> {
  const rows = await trx('otp_codes').where({ contact_hash: contact.hash }).where('sent_at', '>', sentAfter).forShare()
  return rows.map(toCode)
}

/** What a token stands for; both are found without an account, and the contact's row says whose they are. */
export async function findOtpToken(
  trx: Knex.Transaction,
  tokenHash: Buffer,
): Promise<{ contactHash: Buffer; codeId: string } | undefined> {
  const row = await trx('otp_tokens').where({ token_hash: tokenHash }).first()
  return row && { contactHash: row.contact_hash, codeId: row.code_id }
}

/** Call under the contact's lock. */
export async function findOtpCode(
  trx: Knex.Transaction,
  contactHash: Buffer,
  codeId: string,
): Promise<OtpCode | undefined> {
  const row = await trx('otp_codes').where({ contact_hash: contactHash, id: codeId }).first()
  return row && toCode(row)
}

export async function insertOtpToken(
  trx: Knex.Transaction,
  token: { tokenHash: Buffer; contactHash: Buffer; codeId: string; createdAt: Date },
): Promise<void> {
  await trx('otp_tokens').insert({
    token_hash: token.tokenHash,
    contact_hash: token.contactHash,
    code_id: token.codeId,
    created_at: token.createdAt,
  })
}

/** Call under the contact's lock: the tries of a code are counted one after the other. */
export async function recordOtpTry(trx: Knex.Transaction, code: OtpCode): Promise<void> {
  await trx('otp_codes')
    .where({ id: code.id })
    .update({ tries: code.tries + 1 })
}

/** Call under the contact's lock: a code serves once. */
export async function recordOtpUsed(trx: Knex.Transaction, code: OtpCode, now: Date): Promise<void> {
  await trx('otp_codes')
    .where({ id: code.id })
    .update({ tries: code.tries + 1, used_at: now })
}

function toContact(row: Record<string, unknown>): OtpContact {
  return {
    hash: row.contact_hash as Buffer,
    accountId: row.account_id as string,
    contactSealed: row.contact_sealed as Buffer,
    codeId: row.code_id as string | null,
    failuresInRow: row.failures_in_row as number,
    lockedUntil: row.locked_until as Date | null,
    loginEpoch: row.login_epoch as number,
  }
}

function toCode(row: Record<string, unknown>): OtpCode {
  return {
    id: row.id as string,
    codeHash: row.code_hash as Buffer,
    tries: row.tries as number,
    sentAt: row.sent_at as Date,
    expiresAt: row.expires_at as Date,
    usedAt: row.used_at as Date | null,
  }
}
