/**
 * What a mail to a lab admin says (specification, delivery rule 9): the endpoint, its events, since when it fails, how often
 * and why last; with several webhooks on one URL also whose webhook it is and how many there are. Nothing of a patient. Pure.
 */
import { oneLine } from '../one-line.ts'
import type { Mail } from './mails-repository.ts'

export interface MailText {
  subject: string
  text: string
  html: string
}

const INTRODUCTION = {
  warning: 'A webhook of your lab has been failing. Unless its endpoint answers with a status from 200 to 299 first, it is deleted after 24 hours without one.',
  deletion: 'A webhook of your lab was deleted, because its endpoint has not answered with a status from 200 to 299 for 24 hours. It gets no further events. Once the endpoint works again, the integrator can reactivate the webhook; events from the time in between are not sent later.',
} // prettier-ignore

export function composeMail(mail: Mail): MailText {
  const facts = factsOf(mail)
  const introduction = INTRODUCTION[mail.kind]
  const rows = facts.map(
    ([name, value]) => `<tr><th align="left">${escapeHtml(name)}</th><td>${escapeHtml(value)}</td></tr>`,
  )
  return {
    // Fixed words and the lab's own name: nothing from outside gets into a header.
    subject: oneLine(`${mail.kind === 'warning' ? 'Webhook failing' : 'Webhook deleted'}: ${mail.labName}`),
    text: `${introduction}\n\n${facts.map(([name, value]) => `${name}: ${oneLine(value)}`).join('\n')}\n`,
    html: `<p>${escapeHtml(introduction)}</p>\n<table>\n${rows.join('\n')}\n</table>\n`,
  }
}

function factsOf(mail: Mail): [name: string, value: string][] {
  const facts: [string, string][] = [
    ['Endpoint', mail.endpoint],
    ['Events', mail.events.join(', ')],
    ['Failing since', mail.failingSince.toISOString()],
    ['Failed attempts', String(mail.failedAttempts)],
    ['Last error', mail.lastError],
  ]
  if (mail.webhooksOnUrl >= 2) {
    facts.push(['Party', mail.partyName ?? 'no party'])
    facts.push(['Webhooks on this URL', String(mail.webhooksOnUrl)])
  }
  return facts
}

/** The same on every resend, so that a mailbox shows a mail once that we had to send twice. */
export function messageIdOf(mailId: string, from: string): string {
  const domain = /@([A-Za-z0-9.-]+)/.exec(from)?.[1] ?? 'localhost'
  return `<${mailId}@${domain}>`
}

const RETRY_FIRST_SECONDS = 10
const RETRY_MOST_SECONDS = 900

/** When to try again if this try fails, in seconds from now. */
export function mailRetrySeconds(tries: number): number {
  return Math.min(RETRY_FIRST_SECONDS * 2 ** Math.min(tries, 10), RETRY_MOST_SECONDS)
}

function escapeHtml(text: string): string {
  return oneLine(text).replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`)
}
