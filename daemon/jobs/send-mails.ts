import { insistOnMark, type Database } from '../../db/connection.ts'
import type { Clock } from '../../src/clock.ts'
import { errorFields, type Logger } from '../../src/logger.ts'
import { composeMail, mailRetrySeconds, messageIdOf } from '../../src/mails/mail-rules.ts'
import { claimMail, holdMail, listDueMails, recordMailSent, type Mail } from '../../src/mails/mails-repository.ts'
import type { MailTransport } from '../mail-transport.ts'

const MAILS_AT_A_TIME = 20
/** Well within the first wait for another try. */
const HOLD_EVERY_MS = 4000
const STOP_MS = 10_000

export interface SendMailsDeps {
  database: Database
  clock: Clock
  log: Logger
  transport: MailTransport
  from: string
}

export interface MailSending {
  /** Sends what is due. */
  run(): Promise<void>
  /** Starts nothing more; resolves when nothing is under way, or after ten seconds: a server may take a minute to answer. */
  stop(): Promise<void>
}

/**
 * Sends the mails that are due. A mail is claimed for one try by its row, so any number of daemons may do this at once; one
 * that was handed over and could not be marked goes out again later, under the same Message-ID.
 */
export function sendMails(deps: SendMailsDeps): MailSending {
  const underWay = new Set<Promise<void>>()
  let stopped = false

  const sendDue = async (): Promise<void> => {
    let hasWarned = true
    while (hasWarned && !stopped) {
      hasWarned = false
      for (const mail of await listDueMails(deps.database.knex, deps.clock.now(), MAILS_AT_A_TIME)) {
        if (stopped) return
        const isSent = await sendMail(deps, mail)
        // The mail about the deletion may have waited for it.
        hasWarned ||= isSent && mail.kind === 'warning'
      }
    }
  }

  return {
    async run() {
      const running = sendDue()
      underWay.add(running)
      await running.finally(() => underWay.delete(running))
    },
    async stop() {
      stopped = true
      let timer: NodeJS.Timeout | undefined
      const enough = new Promise<void>((resolve) => (timer = setTimeout(resolve, STOP_MS)))
      await Promise.race([Promise.allSettled(underWay), enough])
      clearTimeout(timer)
    },
  }
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
