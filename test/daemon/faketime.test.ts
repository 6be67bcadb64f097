import { spawnSync } from 'node:child_process'
import { afterEach, describe, expect, test } from 'vitest'
import { findFakeTime, FakeTime } from '../../scripts/crash/fake-time.ts'
import { monotonicMs } from '../../src/clock.ts'
import { FakeTimeWorld, jumpsOf, PATIENT, type FakedWebhook } from '../support/fake-time-world.ts'

const own = findFakeTime()
const fetched = own ? undefined : spawnSync('test/servers/libfaketime.sh', { encoding: 'utf8' })
const library = own ?? (fetched?.status === 0 ? fetched.stdout.trim() : undefined)
const WITHOUT_LIBRARY = `skipped: no libfaketime: ${fetched?.stderr?.trim().split('\n').at(-1)}`
if (!library) console.log(WITHOUT_LIBRARY)

const HOUR_MS = 3_600_000
/** Two minutes before a limit: what is done then is over before it, also on a machine that is busy. */
const SLACK_MS = 120_000
/** Long enough for a jump before it. */
const RETRY_MS = 15_000

let world: FakeTimeWorld
afterEach(() => world.close())

describe.skipIf(!library)(
  `under a clock that jumps${library ? '' : ` (${WITHOUT_LIBRARY})`}`,
  { timeout: 300_000 },
  () => {
    test('database, API and daemon together: the mails are those of the script, and no others', async () => {
      world = await new FakeTimeWorld(library!).open()
      const api = await world.start('src/server.ts', world.time)
      let daemon = await world.start('daemon/main.ts', world.time)
      /** One that comes up later: it looks at what the clock has made of it at once, and not within the minute. */
      const nextDaemon = async () => {
        await world.stop(daemon)
        daemon = await world.start('daemon/main.ts', world.time)
      }
      const jump = (timeMs: number) => world.jumpTo(timeMs, [api, daemon])
      const attempt = (...webhooks: FakedWebhook[]) => world.attempt(api, webhooks)
      const states = (...webhooks: FakedWebhook[]) =>
        Promise.all(webhooks.map(async (webhook) => (await world.row(webhook)).state))

      // Starts an hour before the others: what the clock does to it shows that a check has been made.
      const early = await world.webhook(api, 'early')
      await attempt(early)
      await jump(world.clock.nowMs() + HOUR_MS)
      const [always, silent, never, mended, well, late] = await Promise.all([
        world.webhook(api, 'always'),
        world.webhook(api, 'silent'),
        world.webhook(api, 'never'),
        world.webhook(api, 'mended'),
        world.webhook(api, 'well'),
        world.webhook(api, 'late'),
      ])
      const all = [always, silent, never, mended, well, late]
      await attempt(...all)
      const firstFailures = await Promise.all(all.map(async (webhook) => (await world.row(webhook)).first_failure_at))
      /** With time to do something before the first of them is that old. */
      const justBefore = (hours: number) => jump(Math.min(...firstFailures) + hours * HOUR_MS - SLACK_MS)
      /** The last of them is that old. */
      const justAfter = (hours: number) => jump(Math.max(...firstFailures) + hours * HOUR_MS)

      await justBefore(12)
      await attempt(always, mended, well)
      expect(await world.knex('mails').where('webhook_id', '<>', early.id)).toEqual([])

      await justAfter(12)
      await attempt(always)
      world.healthy.add('mended').add('well')
      await attempt(mended, well)
      world.healthy.delete('mended')
      await attempt(mended)
      await attempt(always)

      await justBefore(23)
      await nextDaemon()
      // Past 23:00 for the early one: its warning by the clock tells that the check is done.
      await expect.poll(() => world.mailsOf(early), PATIENT).toEqual(['warning 2'])
      expect((await world.knex('mails').where({ webhook_id: silent.id })).length).toBe(0)

      await justAfter(23)
      await nextDaemon()
      for (const webhook of [silent, never, late]) {
        await expect.poll(() => world.mailsOf(webhook), PATIENT).toEqual(['warning 2'])
      }

      await justBefore(24)
      await attempt(always, silent, mended)
      expect(await states(...all)).toEqual(all.map(() => 'active'))

      await justAfter(24)
      await attempt(always, silent)
      expect(await states(always, silent)).toEqual(['auto_deleted', 'auto_deleted'])

      await justBefore(21)
      await attempt(late, mended)
      await justAfter(24.5)
      expect(await states(never, late, mended, well)).toEqual(['active', 'active', 'active', 'active'])
      await attempt(late)
      expect(await states(late, mended)).toEqual(['auto_deleted', 'active'])

      await world.mailsSent()
      expect(Object.fromEntries([early, ...all].map((webhook) => [webhook.name, world.mailsOf(webhook)]))).toEqual({
        early: ['warning 2'],
        always: ['warning 5', 'deletion 11'],
        silent: ['warning 2', 'deletion 5'],
        never: ['warning 2'],
        // Failing anew since 12:00, which is never 12 hours when it is attempted, nor 23 when the clock asks.
        mended: [],
        well: [],
        late: ['warning 2', 'deletion 5'],
      })
      expect(world.smtpMails()).toHaveLength(8)
      expect(await world.row(never)).toMatchObject({ state: 'active', failed_attempts: 2 })
      expect(jumpsOf(api, 'database')).toHaveLength(9)
      expect(jumpsOf(api, 'process')).toHaveLength(9)
    })

    test('a jump of the daemon’s own clock changes no webhook and holds nothing up', async () => {
      world = await new FakeTimeWorld(library!).open()
      const own = new FakeTime(library!)
      try {
        const api = await world.start('src/server.ts', undefined)
        const daemon = await world.start('daemon/main.ts', own)
        const failing = await world.webhook(api, 'failing')
        const sound = await world.webhook(api, 'sound')
        world.healthy.add('sound')
        await world.attempt(api, [failing])
        const { first_failure_at: firstFailureAt } = await world.row(failing)

        for (const [n, hours] of [25, 22, -30].entries()) {
          own.set(hours * 3600)
          await expect.poll(() => jumpsOf(daemon, 'process').length, PATIENT).toBe(n + 1)
          await world.attempt(api, [failing, sound])
          expect(await world.row(failing)).toMatchObject({
            state: 'active',
            first_failure_at: firstFailureAt,
            failed_attempts: 2 * (n + 2),
            warned_at: null,
          })
        }
        expect(jumpsOf(daemon, 'database')).toEqual([])
        // The last jump was backwards: what is done by the clock, such as sending mails, goes on all the same.
        const since = new Date(firstFailureAt.getTime() - 13 * HOUR_MS)
        await world.knex('webhooks').where({ id: failing.id }).update({ first_failure_at: since })
        await world.attempt(api, [failing])
        await expect.poll(() => world.mailsOf(failing), PATIENT).toEqual(['warning 9'])
      } finally {
        own.remove()
      }
    })

    test('a retry that waits when the database’s clock is set back is made in its time, whoever saw it', async () => {
      world = await new FakeTimeWorld(library!).open()
      const settings = { RETRY_SCHEDULE: String(RETRY_MS / 1000) }
      const api = await world.start('src/server.ts', world.time)
      const daemon = await world.start('daemon/main.ts', world.time, settings)
      const [watched, unwatched] = [await world.webhook(api, 'watched'), await world.webhook(api, 'unwatched')]
      const attempts = async ({ id }: FakedWebhook) =>
        Number((await world.knex('attempts').where({ webhook_id: id }).count({ n: '*' }).first())!.n)
      const failOnce = async (webhook: FakedWebhook) => {
        await world.push(api, webhook)
        await expect.poll(() => attempts(webhook), PATIENT).toBe(1)
        return monotonicMs()
      }
      const retried = async (webhook: FakedWebhook, failedAtMs: number) => {
        await expect.poll(() => attempts(webhook), PATIENT).toBe(2)
        expect(monotonicMs() - failedAtMs).toBeGreaterThan(RETRY_MS - 1000)
      }

      const failedAtMs = await failOnce(watched)
      await world.jumpTo(world.clock.nowMs() - 3 * HOUR_MS, [api, daemon])
      await retried(watched, failedAtMs)
      expect(daemon.lines.filter(({ event }) => event === 'clock.set_back')).toMatchObject([{ deliveries: 1 }])

      // No daemon is there to see the second jump: the next one finds that a later time was noted.
      const failedAgainAtMs = await failOnce(unwatched)
      await world.stop(daemon)
      await world.jumpTo(world.clock.nowMs() - 3 * HOUR_MS, [api])
      await world.start('daemon/main.ts', world.time, settings)
      await retried(unwatched, failedAgainAtMs)
    })
  },
)
