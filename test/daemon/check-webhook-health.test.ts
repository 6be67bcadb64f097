import { expect, test, vi } from 'vitest'
import { healthCheckEveryMs } from '../../daemon/jobs/check-webhook-health.ts'
import { failingWebhooks } from '../support/failing-webhooks.ts'
import { statementsUnderWay } from '../support/under-way.ts'

const own = failingWebhooks()

test('the check by the clock warns at 23 hours when no attempt did, once, also when several daemons check at once', async () => {
  const webhook = await own.failingFor(23)
  await Promise.all([own.check(), own.check(), own.check()])
  await own.check()
  expect(await own.mailRows(webhook.id)).toMatchObject([
    { kind: 'warning', failed_attempts: 6, last_error: 'HTTP status 502' },
  ])
  expect(await own.webhookRow(webhook.id)).toMatchObject({ state: 'active' })
})

test('of two checks that come to a failing webhook together one warns', async () => {
  const webhook = await own.failingFor(23)
  const lock = await own.knex().transaction()
  await lock('webhooks').where({ id: webhook.id }).forUpdate().first()
  const checks = [own.check(), own.check()]
  try {
    await vi.waitFor(
      async () => {
        // Behind the list, which asks for no lock. Without one each would be at its mail, or at the row's new time.
        const waiting = (await statementsUnderWay(lock)).filter((sql) => /for update|^update `webhooks`/i.test(sql))
        expect(waiting).toHaveLength(2)
      },
      { timeout: 10_000 },
    )
  } finally {
    await lock.rollback()
  }
  await Promise.all(checks)
  expect(await own.mailRows(webhook.id)).toHaveLength(1)
})

test('mails are sent as soon as there is a warning, and nobody is woken where there is none', async () => {
  await own.failingFor(23)
  let told = 0
  await own.check(() => (told += 1))
  await own.check(() => (told += 1))
  expect(told).toBe(1)
})

test('the check by the clock warns nobody before, and deletes nobody ever', async () => {
  const early = await own.failingFor(22.99)
  const late = await own.failingFor(100)
  await own.check()
  expect(await own.mailRows(early.id)).toEqual([])
  expect((await own.mailRows(late.id)).map(({ kind }) => kind)).toEqual(['warning'])
  expect(await own.webhookRow(late.id)).toMatchObject({ state: 'active' })
})

test('the check by the clock warns all who have failed for so long, however many they are', async () => {
  const failing = await Promise.all(Array.from({ length: 220 }, () => own.failingFor(23)))
  await own.check()
  expect(await own.knex()('mails').where({ kind: 'warning' }).pluck('webhook_id').then((ids) => ids.sort())).toEqual(failing.map(({ id }) => id).sort()) // prettier-ignore
})

test.each([
  [6, 1000],
  [120, 2000],
  [82_800, 5000],
])('with a warning by the clock at %d s it is looked each %d ms', (warnByClockSeconds, everyMs) => {
  expect(healthCheckEveryMs({ warnByClockSeconds })).toBe(everyMs)
})
