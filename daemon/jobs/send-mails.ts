import { insistOnMark, type Database } from '../../db/connection.ts'
import type { Clock } from '../../src/clock.ts'
import { errorFields, type Logger } from '../../src/logger.ts'
import { composeMail, mailRetrySeconds, messageIdOf } from '../../src/mails/mail-rules.ts'
import { claimMail, holdMail, listDueMails, recordMailSent, type Mail } from '../../src/mails/mails-repository.ts'
import { DueSending } from '../due-sending.ts'
import type { MailTransport } from '../mail-transport.ts'

/** A server may take minutes for one. */
const MAILS_AT_A_TIME = 10
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
 * Sends the mails that are due. One that was handed over and could not be marked goes out again later, under the same Message-ID.
 */
export function sendMails(deps: SendMailsDeps): MailSending {
  const { database, clock, log, most = MAILS_AT_A_TIME } = deps
  const sending = new DueSending<Mail>({
    most,
    // Also behind each that has ended: the mail about a deletion may have waited for its warning.
    async claimDue(room) {
      const claimed: Mail[] = []
      for (const mail of await listDueMails(database.knex, clock.now(), room)) {
        if (await claimMail(database.knex, mail, nextTryAt(clock, mail))) claimed.push(mail)
      }
      return claimed
    },
    handOver: (mail) => handOver(deps, mail).catch((error) => log.warn('mails.failed', errorFields(error))),
  })
  return { begin: () => sending.begin(), run: () => sending.run(), stop: () => sending.stop(STOP_MS) }
}

const nextTryAt = (clock: Clock, { tries }: Mail): Date => new Date(clock.nowMs() + mailRetrySeconds(tries) * 1000)

async function handOver({ database, clock, log, transport, from }: SendMailsDeps, mail: Mail): Promise<void> {
  // A try may take longer than the wait for the next one: nobody else begins one meanwhile.
  const hold = () => void holdMail(database.knex, mail, nextTryAt(clock, mail)).catch(() => {})
  const holding = setInterval(hold, HOLD_EVERY_MS)
  try {
    await transport.send({ messageId: messageIdOf(mail.id, from), recipient: mail.recipient, ...composeMail(mail) })
  } catch (error) {
    return log.warn('mail.not_taken', { ...errorFields(error), attempt: mail.tries + 1 })
  } finally {
    clearInterval(holding)
  }
  // Without it the mail would go out a second time.
  await insistOnMark(() => recordMailSent(database.knex, mail.id, clock.now()))
  log.info('mail.sent', { state: mail.kind })
}
