/**
 * Webhooks through months: endpoints that come and go, people who delete and reactivate, and every mail, deletion, attempt and wait
 * judged by the specification's words. On the rules alone minute by minute; on the real modules and the database in larger steps.
 *
 * `make simulate` runs it large. SIMULATED_WEBHOOKS, SIMULATED_STORED, SIMULATED_DAYS, SIMULATED_STEP_MINUTES; SIMULATED_SEED=n repeats one.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { seededRandom } from '../../scripts/crash/seeded-random.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import { judgeLife, type Findings } from './life-judge.ts'
import { SimulatedEndpoint } from './simulated-endpoint.ts'
import { DAY_MINUTES, MINUTE_MS, SimulatedLife, START_MS } from './simulated-life.ts'
import { SimulatedService } from './simulated-service.ts'

const number = (name: string, other: number) => Number(process.env[name] ?? other)
const WEBHOOKS = number('SIMULATED_WEBHOOKS', 100)
const STORED = number('SIMULATED_STORED', 10)
/** Fewer webhooks in fewer days have to fail more. */
const IS_LARGE = process.env.SIMULATED_DAYS !== undefined
const DAYS = number('SIMULATED_DAYS', 90)
const STORED_DAYS = number('SIMULATED_STORED_DAYS', IS_LARGE ? DAYS : 12)
const STEP_MINUTES = number('SIMULATED_STEP_MINUTES', 30)
const SEED = number('SIMULATED_SEED', Math.floor(Math.random() * 2 ** 31))
const TIMEOUT_MS = IS_LARGE ? 7_200_000 : 240_000

const SHOWN = 5

/** Of a large run, ten times. */
function tell(done: number, all: number, what: string): void {
  if (IS_LARGE && done % Math.ceil(all / 10) === 0) console.log(`${what}: ${done} of ${all}`)
}

function sumUp(all: Findings[]) {
  const sum = (of: (one: Findings) => number) => all.reduce((total, one) => total + of(one), 0)
  return {
    attempts: sum(({ attempts }) => attempts),
    recoveries: sum(({ recoveries }) => recoveries),
    warnings: sum(({ warnings }) => warnings),
    'by the clock': sum(({ byClock }) => byClock),
    deletions: sum(({ deletions }) => deletions),
    reactivations: sum(({ reactivations }) => reactivations),
    shortestLeadMs: all.reduce((least, { shortestLeadMs }) => Math.min(least, shortestLeadMs), Infinity),
    violations: all.flatMap(({ violations }) => violations),
  }
}

function requireSound(all: Findings[], what: string): void {
  const { violations, shortestLeadMs, ...counts } = sumUp(all)
  const lead = Number.isFinite(shortestLeadMs) ? `${Math.floor(shortestLeadMs / MINUTE_MS)} min` : 'none'
  const numbers = Object.entries(counts).map(([name, count]) => `${name}=${count}`)
  console.log(`${what} seed=${SEED} ${numbers.join(' ')} shortest lead=${lead} violations=${violations.length}`)
  expect(violations.slice(0, SHOWN)).toEqual([])
  // A history without both mails shows nothing.
  expect(Math.min(counts.warnings, counts.deletions, counts.reactivations, counts.recoveries)).toBeGreaterThan(0)
}

test(`${WEBHOOKS} webhooks × ${DAYS} days by the rules go as the specification says`, { timeout: TIMEOUT_MS }, () => {
  const found: Findings[] = []
  const untilMs = START_MS + DAYS * DAY_MINUTES * MINUTE_MS
  for (let n = 0; n < WEBHOOKS; n++) {
    tell(n, WEBHOOKS, 'rules: webhooks')
    // Seeds that are neighbours are to have no lives in common.
    const random = seededRandom(SEED ^ Math.imul(n + 1, 0x9e3779b1))
    for (let atMs = START_MS; atMs < untilMs;) {
      const life = new SimulatedLife(random, new SimulatedEndpoint(random))
      while (atMs < untilMs && life.minute(atMs)) atMs += MINUTE_MS
      // One that is deleted is followed by a new one.
      atMs += MINUTE_MS
      found.push(judgeLife(life.entries, { lookMs: MINUTE_MS, lateMs: MINUTE_MS, untilMs: Math.min(atMs, untilMs) }))
    }
  }
  requireSound(found, `rules: webhooks=${WEBHOOKS} days=${DAYS}`)
  expect(sumUp(found)['by the clock']).toBeGreaterThan(0)
})

describe('on the real modules and the database', () => {
  let app: TestApp
  beforeAll(async () => {
    app = await startTestApp({ accessTokenTtlSeconds: 10 * 365 * 86_400 })
  })
  afterAll(() => app.close())

  test(`${STORED} webhooks × ${STORED_DAYS} days go as the specification says`, { timeout: TIMEOUT_MS }, async () => {
    const random = seededRandom(SEED)
    const service = await new SimulatedService(app, random, STORED, !IS_LARGE).open()
    const steps = Math.ceil((STORED_DAYS * DAY_MINUTES) / STEP_MINUTES)
    for (let n = 0; n < steps; n++) {
      tell(n, steps, 'stored: steps')
      await service.step(STEP_MINUTES)
    }
    const histories = await service.histories()
    const stepMs = STEP_MINUTES * MINUTE_MS
    const pace = { lookMs: stepMs, lateMs: stepMs + MINUTE_MS, untilMs: app.clock.nowMs() }
    requireSound(
      histories.map((entries) => judgeLife(entries, pace)),
      `stored: webhooks=${STORED} days=${STORED_DAYS}`,
    )
  })
})
