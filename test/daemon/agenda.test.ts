import { afterEach, describe, expect, test } from 'vitest'
import { createScheduler, type Scheduler } from '../../daemon/agenda.ts'
import { createLogger } from '../../src/logger.ts'

const log = createLogger('daemon', 'silent')
let scheduler: Scheduler | undefined

afterEach(async () => {
  await scheduler?.stop()
  scheduler = undefined
})

interface Run {
  webhookId: string
  end: () => void
}

async function start(): Promise<Run[]> {
  const runs: Run[] = []
  const job = (webhookId: string) => new Promise<void>((resolve) => runs.push({ webhookId, end: resolve }))
  const idle = async () => {}
  scheduler = createScheduler({
    processName: 'test',
    laneJobs: { 'deliver-webhook': job, 'retry-webhook': job },
    clockJobs: {
      'check-webhook-health': idle,
      'follow-clock': idle,
      'purge-expired': idle,
      'recover-deliveries': idle,
      'send-mails': idle,
      'send-messages': idle,
    },
    healthCheckEveryMs: 5000,
    log,
  })
  await scheduler.start()
  return runs
}

describe('the scheduler', () => {
  test('runs an offered lane at once', async () => {
    const runs = await start()
    scheduler!.offer('deliver-webhook', 'a')
    await expect.poll(() => runs.length, { interval: 1, timeout: 500 }).toBe(1)
    runs[0]!.end()
  })

  test('runs a lane that is offered again while its job runs only once', async () => {
    const runs = await start()
    scheduler!.offer('deliver-webhook', 'a')
    await expect.poll(() => runs.length).toBe(1)
    scheduler!.offer('deliver-webhook', 'a')
    scheduler!.offer('deliver-webhook', 'b')
    await expect.poll(() => runs.length).toBe(2)
    expect(runs.map((run) => run.webhookId)).toEqual(['a', 'b'])
    for (const run of runs) run.end()
  })

  test('runs a lane that is offered after its job has ended again', async () => {
    const runs = await start()
    for (let n = 1; n <= 3; n++) {
      await expect
        .poll(() => {
          scheduler!.offer('deliver-webhook', 'a')
          return runs.length
        })
        .toBe(n)
      runs[n - 1]!.end()
    }
  })

  test('runs a thousand lanes side by side', async () => {
    const runs = await start()
    for (let n = 0; n < 1000; n++) scheduler!.offer('deliver-webhook', `w${n}`)
    await expect.poll(() => runs.length, { timeout: 10_000 }).toBe(1000)
    for (const run of runs) run.end()
  })
})
