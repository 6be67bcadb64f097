import { insistOnMark, type Database } from '../../db/connection.ts'
import type { Clock } from '../../src/clock.ts'
import { errorFields, type Logger } from '../../src/logger.ts'
import { composeMail, mailRetrySeconds, messageIdOf } from '../../src/mails/mail-rules.ts'
import { claimMail, holdMail, listDueMails, recordMailSent, type Mail } from '../../src/mails/mails-repository.ts'
import { DueSending } from '../due-sending.ts'
import type { MailTransport } from '../mail-transport.ts'

const MAILS_AT_A_TIME = 10
/** A server may take minutes for one: what takes so long is not what the others wait for. */
const SLOW_MAILS = { afterMs: 20_000, most: 40 }
/** Well within the first wait for another try. */
const HOLD_EVERY_MS = 4000
const STOP_MS = 10_000

export interface SendMailsDeps {
  database: Database
  clock: Clock
  log: Logger
  transport: MailTransport
  from: string
  /** So many at a time. */
  most?: number
  /** When one is not counted among them any more, in milliseconds, and how many of that kind there may be. */
  slow?: { afterMs: number; most: number }
}

export interface MailSending {
  /** Begins to send what is due. Resolves when that is begun: a server may take ten minutes to answer. */
  begin(): Promise<void>
  /** Sends what is due. */
  run(): Promise<void>
  /** Starts nothing more; resolves when nothing is under way, or after ten seconds. */
  stop(): Promise<void>
}

/**
 * Sends the mails that are due. A mail is claimed for one try by its row; one that was handed over and could not be marked goes out again
 * later, under the same Message-ID.
 */
export function sendMails(deps: SendMailsDeps): MailSending {
  const { database, clock, log, most = MAILS_AT_A_TIME, slow = SLOW_MAILS } = deps
  const sending = new DueSending<Mail>({
    most,
    slow,
    list: (limit) => listDueMails(database.knex, clock.now(), limit),
    keyOf: ({ id }) => id,
    async handOver(mail) {
      const isSent = await sendMail(deps, mail)
      // The mail about the deletion may have waited for it.
      if (isSent && mail.kind === 'warning') void sending.begin()
    },
    onFault: (error) => log.warn('mails.failed', errorFields(error)),
  })
  return { begin: () => sending.begin(), run: () => sending.run(), stop: () => sending.stop(STOP_MS) }
}

/** @returns whether this try has sent it */
async function sendMail({ database, clock, log, transport, from }: SendMailsDeps, mail: Mail): Promise<boolean> {
  const nextTryAt = () => new Date(clock.nowMs() + mailRetrySeconds(mail.tries) * 1000)
  if (!(await claimMail(database.knex, mail, nextTryAt()))) return false
  // A try may take longer than the wait for the next one: nobody else begins one meanwhile.
  const holding = setInterval(() => void holdMail(database.knex, mail, nextTryAt()).catch(() => {}), HOLD_EVERY_MS)
  try {
    await transport.send({ messageId: messageIdOf(mail.id, from), recipient: mail.recipient, ...composeMail(mail) })
  } catch (error) {
    log.warn('mail.not_taken', { ...errorFields(error), attempt: mail.tries + 1 })
    return false
  } finally {
    clearInterval(holding)
  }
  // Without it the mail would go out a second time.
  await insistOnMark(() => recordMailSent(database.knex, mail.id, clock.now()))
  log.info('mail.sent', { state: mail.kind })
  return true
}
