import { expect, test } from 'vitest'
import { composeMail, mailRetrySeconds, messageIdOf } from '../../src/mails/mail-rules.ts'
import type { Mail } from '../../src/mails/mails-repository.ts'

const mail = (fields: Partial<Mail> = {}) =>
  ({
    kind: 'warning',
    labName: 'Sunrise',
    endpoint: 'https://lims.example.in/hooks',
    events: ['lead.created', 'bill.created'],
    failingSince: new Date('2026-11-20T10:00:00.000Z'),
    failedAttempts: 6,
    lastError: 'HTTP status 502',
    webhooksOnUrl: 1,
    partyName: null,
    ...fields,
  }) as Mail

test('the same facts in text and HTML; whose webhook it is only where several share the URL', () => {
  const { subject, text, html } = composeMail(mail())
  expect(subject).toBe('Webhook failing: Sunrise')
  for (const fact of ['lead.created, bill.created', '2026-11-20T10:00:00.000Z', 'HTTP status 502']) {
    expect(text).toContain(fact)
    expect(html).toContain(fact)
  }
  expect(text).not.toContain('Party')
  const shared = composeMail(mail({ kind: 'deletion', webhooksOnUrl: 2 }))
  expect(shared.subject).toBe('Webhook deleted: Sunrise')
  expect(shared.text).toContain('Party: no party\nWebhooks on this URL: 2')
})

test('no name ends a line, turns the direction of what follows, or is HTML', () => {
  const labName = 'Lab\r\nBcc: x@example.com\u0085\u2028\u202e'
  const { subject, html } = composeMail(mail({ labName, webhooksOnUrl: 2, partyName: '<img src=x>&"\'' }))
  expect(subject).toBe('Webhook failing: Lab Bcc: x@example.com ')
  expect(html).not.toContain('<img')
  expect(html).toContain('&#60;img src=x&#62;&#38;&#34;&#39;')
})

test('a mail that goes twice has one Message-ID, of the sender’s domain', () => {
  expect(messageIdOf('m1', 'Lab <service@lab.example>')).toBe('<m1@lab.example>')
  expect(messageIdOf('m1', 'nobody')).toBe('<m1@localhost>')
})

test('tries come after 10 s, twice as late each time, and each quarter of an hour at last', () => {
  expect([0, 1, 2, 6, 7, 1000].map(mailRetrySeconds)).toEqual([10, 20, 40, 640, 900, 900])
})
