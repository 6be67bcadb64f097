import type { Knex } from 'knex'
import { hashSecret, newSecret, seal, unseal } from '../crypto.ts'
import { newId } from '../ids.ts'
import type { DomainError } from '../errors.ts'
import type { AccountHandler, HandlerDeps } from '../handlers.ts'
import {
  claimOtpContact,
  findOtpCode,
  findOtpToken,
  insertOtpCode,
  insertOtpToken,
  listOtpCodes,
  lockOtpContact,
  recordOtpTry,
  recordOtpUsed,
  updateOtpContact,
} from './otp-repository.ts'
import {
  afterFailure,
  CODE_TTL_MS,
  codeHash,
  contactHash,
  contactSealName,
  invalidOtp,
  judgeOtpRequest,
  judgeOtpTry,
  lockMovedBack,
  LONGEST_LIMIT_MS,
  newCode,
  otpLimited,
  servesNoMore,
  smsText,
  type OtpContact,
} from './otp-rules.ts'
import { isPatientContact } from './patients-repository.ts'
import type { PatientClaims } from './patient-token.ts'
import { giveUpSms, insertSms } from './sms-repository.ts'
import { sealSms } from './sms-sender.ts'

interface LoginHandlers {
  requestLoginOtp: AccountHandler<'requestLoginOtp'>
  verifyLoginOtp: AccountHandler<'verifyLoginOtp'>
}

interface RequestOutcome {
  refusal?: DomainError
  /** A code that was made by this request, and is sent. */
  newCodeId?: string | undefined
}

interface TryOutcome {
  refusal?: DomainError
  claims?: PatientClaims
}

/** @returns the refusal, where there is such a lock: returned, since a throw would undo what is written here */
async function moveLockBack(trx: Knex.Transaction, contact: OtpContact, now: Date): Promise<DomainError | undefined> {
  const lockedUntil = lockMovedBack(contact, now)
  if (!lockedUntil) return undefined
  await updateOtpContact(trx, contact.accountId, contact.hash, { lockedUntil })
  return otpLimited(lockedUntil.getTime() - now.getTime())
}

export function loginHandlers({ database, clock, keys, smsSender, patientTokens }: HandlerDeps): LoginHandlers {
  /**
   * Code, SMS and contact in one transaction: a code that was sent is known, and one that is known is sent.
   * @returns the code's id, which its SMS has as well
   */
  async function insertCode(trx: Knex.Transaction, contact: OtpContact, isPatient: boolean, now: Date) {
    const code = newCode()
    const codeId = newId(now.getTime())
    const expiresAt = new Date(now.getTime() + CODE_TTL_MS)
    const to = unseal(keys, contact.contactSealed, contactSealName(contact.hash)).toString('utf8')
    // Sealed for nobody, too: a number that no patient has takes the same work, and gets no SMS.
    const content = sealSms(keys, codeId, to, smsText(code))
    await insertOtpCode(trx, contact.hash, {
      id: codeId,
      codeHash: codeHash(keys, codeId, code),
      tries: 0,
      sentAt: now,
      expiresAt,
      usedAt: null,
    })
    // What has not gone out yet of the code before would be a code that is dead.
    if (contact.codeId !== null) await giveUpSms(trx, contact.codeId)
    await insertSms(trx, {
      id: codeId,
      accountId: contact.accountId,
      content: isPatient ? content : null,
      createdAt: now,
      expiresAt,
    })
    await updateOtpContact(trx, contact.accountId, contact.hash, { codeId })
    return codeId
  }

  return {
    async requestLoginOtp({ account, body }) {
      const hash = contactHash(keys, account.id, body.contact)
      const contactSealed = seal(keys, Buffer.from(body.contact, 'utf8'), contactSealName(hash))
      const otpToken = newSecret()
      const { refusal, newCodeId } = await database.transaction(async (trx): Promise<RequestOutcome> => {
        const now = clock.now()
        const contact = await claimOtpContact(trx, { hash, accountId: account.id, contactSealed }, now)
        const locked = await moveLockBack(trx, contact, now)
        if (locked) return { refusal: locked }
        const isPatient = await isPatientContact(trx, account.id, body.contact)
        const codes = await listOtpCodes(trx, contact, new Date(now.getTime() - LONGEST_LIMIT_MS))
        const alive = codes.find(({ id }) => id === contact.codeId)
        const sentAt = codes.map((code) => code.sentAt)
        const verdict = judgeOtpRequest(contact, alive, sentAt, now)
        const made = verdict === 'send' ? await insertCode(trx, contact, isPatient, now) : undefined
        const codeId = made ?? alive!.id
        await insertOtpToken(trx, { tokenHash: hashSecret(otpToken), contactHash: hash, codeId, createdAt: now })
        return { newCodeId: made }
      })
      if (refusal) throw refusal
      if (newCodeId !== undefined) smsSender.sendSoon(newCodeId)
      return { status: 200, body: { otpToken } }
    },

    async verifyLoginOtp({ account, body }) {
      const tokenHash = hashSecret(body.otpToken)
      // A wrong try is counted and committed before anything is thrown: it must outlive its own 401.
      const { refusal, claims } = await database.transaction(async (trx): Promise<TryOutcome> => {
        const token = await findOtpToken(trx, tokenHash)
        // Another account's contact is not found under this account, so that its token is an unknown one.
        const contact = token && (await lockOtpContact(trx, account.id, token.contactHash))
        const code = contact && (await findOtpCode(trx, contact.hash, token.codeId))
        if (!contact || !code) return {}
        const now = clock.now()
        const locked = await moveLockBack(trx, contact, now)
        if (locked) return { refusal: locked }
        const verdict = judgeOtpTry(contact, code, codeHash(keys, code.id, body.otp), now)
        if (verdict === 'dead') return {}
        if (verdict === 'wrong') {
          const after = afterFailure(contact, now)
          await recordOtpTry(trx, code)
          await updateOtpContact(trx, account.id, contact.hash, after)
          if (servesNoMore(code, after)) await giveUpSms(trx, code.id)
          return {}
        }
        const loginEpoch = contact.loginEpoch + 1
        await recordOtpUsed(trx, code, now)
        // The gateway has sent it and said that it has not: a further one would bring a dead code.
        await giveUpSms(trx, code.id)
        await updateOtpContact(trx, account.id, contact.hash, { failuresInRow: 0, lockedUntil: null, loginEpoch })
        return { claims: { accountId: account.id, contactHash: contact.hash, loginEpoch } }
      })
      if (refusal) throw refusal
      if (!claims) throw invalidOtp()
      return { status: 200, body: { patientToken: await patientTokens.issue(claims) } }
    },
  }
}
