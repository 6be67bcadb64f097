/**
 * Mails whose every fact was written by somebody who wants to be read as something else: a header, a recipient, a tag.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { sendMails } from '../../daemon/jobs/send-mails.ts'
import { createMailTransport, type MailTransport } from '../../daemon/mail-transport.ts'
import { newId } from '../../src/ids.ts'
import { createLogger } from '../../src/logger.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { buildAccount, buildLab, buildOperatorKey } from '../support/builders.ts'
import { decodeWords, parseMail } from '../support/parsed-mail.ts'
import { startSmtpServer, type TestSmtpServer } from '../support/smtp.ts'
import { INJECTION_TEXTS } from '../fuzz/injection-texts.ts'

const FROM = 'Laboratory <no-reply@lab.example.in>'
const RECIPIENT = 'admin@lab.example.in'
/** What stands in a mail beside the facts. */
const TAGS = ['<p>', '</p>', '<table>', '</table>', '<tr>', '</tr>', '<th align="left">', '</th>', '<td>', '</td>']
const FACTS = ['Endpoint', 'Events', 'Failing since', 'Failed attempts', 'Last error', 'Party', 'Webhooks on this URL']
/** What fits in the smallest of the columns. */
const TEXTS = INJECTION_TEXTS.filter((text) => [...text].length <= 200)
/** What ends a line or begins a tag: for the lab's name, which stands in a header. */
const SHARP_TEXTS = TEXTS.filter((text) => /[\u0000-\u001f\u007f-\u009f\u2028<]/.test(text))

let app: TestApp
let smtp: TestSmtpServer
let transport: MailTransport

beforeAll(async () => {
  app = await startTestApp()
  smtp = await startSmtpServer()
  transport = createMailTransport({ smtpUrl: smtp.url, from: FROM, dataDir: app.dataDir, now: () => app.clock.now() })
})
afterAll(async () => {
  transport.close()
  await smtp.close()
  await app.close()
})

async function writeMail(fields: Record<string, unknown>): Promise<void> {
  const now = app.clock.now()
  await app.database.knex('mails').insert({
    id: newId(now.getTime()),
    kind: 'warning',
    account_id: newId(0),
    webhook_id: newId(0),
    recipient: RECIPIENT,
    lab_name: 'Sunrise',
    endpoint: 'https://lims.example.in/hooks',
    events: 'lead.created',
    failing_since: now,
    failed_attempts: 7,
    last_error: 'HTTP status 503',
    party_name: null,
    webhooks_on_url: 2,
    created_at: now,
    due_at: now,
    ...fields,
  })
}

async function sendAll(): Promise<void> {
  const log = createLogger('daemon', 'silent')
  const mails = sendMails({ database: app.database, clock: app.clock, log, transport, from: FROM })
  for (let waiting = 1; waiting > 0;) {
    await mails.run()
    const [row] = await app.database.knex('mails').where('due_at', '<=', app.clock.now()).count({ n: '*' })
    waiting = Number(row!.n)
  }
}

test('a mail has one recipient, the same headers and tags and one line a fact, whatever stands in it', async () => {
  for (let n = 0; n < TEXTS.length; n += 4) {
    const [endpoint, events = 'x', lastError = 'x', party_name = null] = TEXTS.slice(n, n + 4)
    await writeMail({
      lab_name: SHARP_TEXTS[(n / 4) % SHARP_TEXTS.length],
      endpoint,
      events,
      last_error: lastError,
      party_name,
    })
  }
  expect(SHARP_TEXTS.length).toBeLessThan(TEXTS.length / 4)
  await sendAll()
  expect(smtp.mails).toHaveLength(Math.ceil(TEXTS.length / 4))
  for (const { bytes, recipients, from } of smtp.mails) {
    expect([recipients, from]).toEqual([[RECIPIENT], 'no-reply@lab.example.in'])
    const { headers, parts } = parseMail(bytes)
    expect(headers.map(([name]) => name).sort()).toEqual(
      ['Content-Type', 'Date', 'From', 'MIME-Version', 'Message-ID', 'Subject', 'To'].sort(),
    )
    const header = Object.fromEntries(headers)
    expect([header.From, header.To]).toEqual([FROM, RECIPIENT])
    expect(decodeWords(header.Subject!)).toMatch(/^Webhook failing:/)
    expect(parts.map((part) => part.headers[0]![1])).toEqual(['text/plain; charset=utf-8', 'text/html; charset=utf-8'])
    const [text, html] = parts.map((part) => part.text)
    const lines = text!.trimEnd().split(/[\r\n\u0085\u2028\u2029]+/)
    expect(lines.slice(1).map((line) => line.split(':')[0])).toEqual(FACTS)
    const rest = TAGS.reduce((left, tag) => left.replaceAll(tag, ''), html!)
    expect(rest).not.toMatch(/[<>"']/)
    expect(html!.split('<tr>')).toHaveLength(FACTS.length + 1)
  }
}, 60_000)

describe('an address', () => {
  const HOSTILE = [
    `${RECIPIENT}, thief@example.com`,
    `${RECIPIENT};thief@example.com`,
    `${RECIPIENT}\r\nBcc: thief@example.com`,
    `${RECIPIENT}\nRCPT TO:<thief@example.com>`,
    `${RECIPIENT}>\r\nRCPT TO:<thief@example.com`,
    `x <thief@example.com>, ${RECIPIENT}`,
    `"${RECIPIENT}, thief"@example.com`,
    `group:thief@example.com,${RECIPIENT};`,
  ]

  test.each(HOSTILE)('that is more than one is refused where it is set: %j', async (adminEmail) => {
    const token = await buildOperatorKey(app)
    const account = await buildAccount(app)
    const lab = await buildLab(app, account)
    const answers = [
      await app.call('POST', '/operator/accounts', { token, body: { name: 'x', adminEmail } }),
      await app.call('PATCH', `/operator/accounts/${account.id}`, { token, body: { adminEmail } }),
      await app.call('PATCH', `/operator/labs/${lab.id}`, { token, body: { adminEmail } }),
    ]
    expect(answers.map(({ status }) => status)).toEqual([400, 400, 400])
  })

  test('that came in by another way is never read as several', async () => {
    smtp.mails.length = 0
    for (const recipient of HOSTILE) await writeMail({ recipient })
    await sendAll()
    for (const { recipients, bytes } of smtp.mails) {
      expect(recipients).toHaveLength(1)
      expect(parseMail(bytes).headers.map(([name]) => name)).not.toContain('Bcc')
    }
  })
})
