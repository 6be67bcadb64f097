import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, expect, test, vi } from 'vitest'
import { sendMails } from '../../daemon/jobs/send-mails.ts'
import { createMailTransport } from '../../daemon/mail-transport.ts'
import { newId } from '../../src/ids.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'
import { failingWebhooks, log } from '../support/failing-webhooks.ts'

const own = failingWebhooks()
const from = 'Lab Service <service@lab.example>'

function send(): Promise<void> {
  const { db, world, smtp } = own
  const now = () => world.clock.now()
  const transport = createMailTransport({ smtpUrl: smtp.url, from, dataDir: '/nonexistent', now })
  return sendMails({ database: db.database, clock: world.clock, log, transport, from }).run()
}

async function warn(id: string) {
  await own.check()
  return own.mailRows(id)
}

test('a mail shows endpoint, events, since when, how often and why, to one recipient, with nothing of a patient', async () => {
  const webhook = await own.failingFor(23)
  const [row] = await warn(webhook.id)
  await send()
  expect(own.smtp.mails).toHaveLength(1)
  const { raw, recipients } = own.smtp.mails[0]!
  expect(recipients).toEqual(['account-admin@example.com'])
  for (const text of [
    `Endpoint: ${own.receiver.url}/hooks`,
    'Events: lead.created, bill.created',
    `Failing since: ${row.failing_since.toISOString()}`,
    'Failed attempts: 6',
    'Last error: HTTP status 502',
  ]) {
    expect(raw.replace(/=\r?\n/g, '')).toContain(text)
  }
  expect(raw).not.toContain('Asha')
  expect(raw).not.toContain('Party')
  expect(raw).toContain('Webhook failing')
})

test('without a mail server a mail is a line of the outbox', async () => {
  const { db, world } = own
  const dataDir = mkdtempSync(join(tmpdir(), 'lis-mails-'))
  const webhook = await own.failingFor(23)
  const [row] = await warn(webhook.id)
  const transport = createMailTransport({ smtpUrl: undefined, from, dataDir, now: () => world.clock.now() })
  await sendMails({ database: db.database, clock: world.clock, log, transport, from }).run()
  const file = join(dataDir, 'outbox', 'mails.ndjson')
  const lines = readFileSync(file, 'utf8').trimEnd().split('\n')
  expect(lines.map((line) => JSON.parse(line))).toEqual([
    {
      at: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]{12}Z$/),
      to: 'account-admin@example.com',
      subject: expect.stringMatching(/^Webhook failing/),
      text: expect.stringContaining(`Failing since: ${row.failing_since.toISOString()}`),
      headers: { from, 'message-id': expect.stringMatching(/^<[^<>@\s]+@[^<>@\s]+>$/) },
    },
  ])
  expect(statSync(file).mode & 0o077).toBe(0)
  rmSync(dataDir, { recursive: true })
})

test('a mail names the party and the number of the account’s webhooks when several share the URL, a mail for each', async () => {
  const corporateId = newId(7)
  await own.knex()('parties').insert({
    id: corporateId,
    account_id: own.world.accountId,
    kind: 'corporate',
    name: 'Acme <b>Insurance</b>\r\nBcc: x@example.com',
    created_at: own.world.clock.now(),
  })
  const ofParty = await own.failingFor(23, { corporateId })
  const catchAll = await own.failingFor(23)
  // Another account's on the same URL is nobody else's business.
  const stranger = await new DeliveryWorld(own.db.database).open()
  await stranger.webhook({ endpoint: `${own.receiver.url}/hooks` })
  await stranger.close()
  await warn(ofParty.id)
  await send()
  expect(own.smtp.mails).toHaveLength(2)
  expect(await own.mailRows(ofParty.id)).toMatchObject([
    { webhooks_on_url: 2, party_name: expect.stringContaining('Acme') },
  ])
  expect(await own.mailRows(catchAll.id)).toMatchObject([{ webhooks_on_url: 2, party_name: null }])
  const all = own.smtp.mails.map(({ raw }) => raw.replace(/=\r?\n/g, '')).join('\n')
  expect(all).toContain('Party: no party')
  expect(all).toContain('Webhooks on this URL: 2')
  expect(all).not.toMatch(/^bcc:/im)
  // The plain part shows the name as it is; the other one must not contain its markup.
  expect(all).toContain('Acme &#60;b&#62;Insurance')
  for (const { recipients } of own.smtp.mails) expect(recipients).toHaveLength(1)
})

test('a mail goes to the lab’s admin where the lab has one', async () => {
  await own.knex()('labs').where({ id: own.world.labId }).update({ admin_email: 'lab-admin@example.com' })
  await warn((await own.failingFor(23)).id)
  await send()
  expect(own.smtp.mails[0]!.recipients).toEqual(['lab-admin@example.com'])
})

test('a mail that is not taken is sent again under the same Message-ID until it is', async () => {
  const webhook = await own.failingFor(23)
  await warn(webhook.id)
  own.smtp.refusing = true
  await send()
  await send()
  expect(await own.mailRows(webhook.id)).toMatchObject([{ tries: 1, sent_at: null }])
  own.smtp.refusing = false
  await own.knex()('mails').update({ due_at: own.world.clock.now() })
  await send()
  await own.knex()('mails').update({ due_at: own.world.clock.now(), sent_at: null })
  await send()
  expect(own.smtp.mails).toHaveLength(2)
  expect(own.smtp.mails[0]!.messageId).toMatch(/^<[0-9a-z]{26}@lab\.example>$/)
  expect(own.smtp.mails[1]!.messageId).toBe(own.smtp.mails[0]!.messageId)
  await send()
  expect(own.smtp.mails).toHaveLength(2)
})

test('a deletion is told behind its warning, also where that one was refused', async () => {
  const webhook = await own.failingFor(23)
  await warn(webhook.id)
  own.smtp.refusing = true
  await send()
  const [warning] = await own.mailRows(webhook.id)
  const deletion = { ...warning, id: newId(own.world.clock.nowMs()), kind: 'deletion', tries: 0 }
  await own
    .knex()('mails')
    .insert({ ...deletion, due_at: own.world.clock.now() })
  // One whose warning will never be taken: the address was wrong, and has been corrected since.
  const toAnother = { ...deletion, id: newId(own.world.clock.nowMs()), recipient: 'another@example.com' }
  await own
    .knex()('mails')
    .insert({ ...toAnother, due_at: own.world.clock.now() })
  own.smtp.refusing = false
  await send()
  expect(own.smtp.mails.map(({ recipients }) => recipients)).toEqual([['another@example.com']])
  own.smtp.mails.length = 0
  await own.knex()('mails').where({ id: warning.id }).update({ due_at: own.world.clock.now() })
  await send()
  expect(own.smtp.mails.map(({ raw }) => /^subject: (Webhook \w+)/im.exec(raw)?.[1])).toEqual([
    'Webhook failing',
    'Webhook deleted',
  ])
})

test('a mail is sent once by several daemons', async () => {
  await warn((await own.failingFor(23)).id)
  await Promise.all(Array.from({ length: 8 }, send))
  expect(own.smtp.mails).toHaveLength(1)
})

afterEach(() => vi.useRealTimers())

test('a mail is not tried by another daemon while its server takes its time', async () => {
  const webhook = await own.failingFor(23)
  await warn(webhook.id)
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
  const { db, world } = own
  let take = () => {}
  const taken = new Promise<void>((resolve) => (take = resolve))
  const transport = { send: () => taken, close: () => {} }
  const sending = sendMails({ database: db.database, clock: world.clock, log, transport, from }).run()
  const row = async () => (await own.mailRows(webhook.id))[0]
  await expect.poll(async () => (await row()).tries, { timeout: 5000 }).toBe(1)
  for (let n = 0; n < 3; n++) {
    const { due_at: before } = await row()
    vi.advanceTimersByTime(4000)
    await expect.poll(async () => (await row()).due_at.getTime(), { timeout: 5000 }).toBeGreaterThan(before.getTime())
  }
  take()
  await sending
  vi.advanceTimersByTime(20_000)
  expect(await row()).toMatchObject({ tries: 1, due_at: null, sent_at: expect.any(Date) })
})

test('a stop waits for the mail that is being handed over, and begins no other', async () => {
  const webhooks = [await own.failingFor(23), await own.failingFor(23)]
  await own.check()
  const { db, world } = own
  let take = () => {}
  const taken = new Promise<void>((resolve) => (take = resolve))
  const transport = { send: () => taken, close: () => {} }
  const mails = sendMails({ database: db.database, clock: world.clock, log, transport, from, most: 1 })
  const rows = async () => (await Promise.all(webhooks.map(({ id }) => own.mailRows(id)))).flat()
  const running = mails.run()
  await expect.poll(async () => (await rows()).map(({ tries }) => tries), { timeout: 5000 }).toContain(1)
  let isStopped = false
  const stopped = mails.stop().then(() => (isStopped = true))
  await new Promise((resolve) => setTimeout(resolve, 200))
  expect(isStopped).toBe(false)
  take()
  await stopped
  await running
  await mails.run()
  expect((await rows()).map(({ tries, sent_at }) => [tries, sent_at !== null]).sort()).toEqual([
    [0, false],
    [1, true],
  ])
  await db.database.knex('mails').delete()
})

test('a mail that its server takes long for keeps no other waiting, and is told of none twice', async () => {
  const slow = await own.failingFor(23)
  await warn(slow.id)
  await own.knex()('mails').update({ recipient: 'slow@example.com' })
  const { db, world } = own
  const held = Promise.withResolvers<void>()
  own.smtp.hold = (recipient) => (recipient === 'slow@example.com' ? held.promise : undefined)
  const transport = createMailTransport({
    smtpUrl: own.smtp.url,
    from,
    dataDir: '/nonexistent',
    now: () => world.clock.now(),
  })
  const places = { most: 1, slow: { afterMs: 100, most: 2 } }
  const mails = sendMails({ database: db.database, clock: world.clock, log, transport, from, ...places })
  await mails.begin()
  await expect.poll(() => own.smtp.mails.length).toBe(1)
  const other = await own.failingFor(23)
  await own.check()
  await mails.begin()
  await expect.poll(async () => (await own.mailRows(other.id))[0].sent_at, { timeout: 5000 }).toBeInstanceOf(Date)
  expect((await own.mailRows(slow.id))[0]).toMatchObject({ tries: 1, sent_at: null })
  held.resolve()
  await mails.run()
  expect((await own.mailRows(slow.id))[0]).toMatchObject({ tries: 1, sent_at: expect.any(Date) })
  expect(own.smtp.mails.map(({ recipients }) => recipients[0])).toEqual([
    'slow@example.com',
    'account-admin@example.com',
  ])
})

test('a server that never comes to an end is left after the time for one try', async () => {
  const webhook = await own.failingFor(23)
  await warn(webhook.id)
  const closed = Promise.withResolvers<void>()
  const server = createServer((socket) => {
    // Never silent for long, and never done.
    const timer = setInterval(() => socket.write('220-wait\r\n'), 50)
    socket.on('error', () => {})
    socket.on('close', () => {
      clearInterval(timer)
      closed.resolve()
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as { port: number }
  const { db, world } = own
  const smtp = { smtpUrl: `smtp://127.0.0.1:${port}`, smtpDeadlineMs: 300 }
  const transport = createMailTransport({ ...smtp, from, dataDir: '/nonexistent', now: () => world.clock.now() })
  await sendMails({ database: db.database, clock: world.clock, log, transport, from }).run()
  expect(await own.mailRows(webhook.id)).toMatchObject([{ tries: 1, sent_at: null }])
  await closed.promise
  server.close()
})
