/**
 * `make bench-soak`: the usual work of 200 accounts for a while, on a fixed schedule, beside what the lab does; some of the
 * endpoints are faulty all the time. Then a burst, and at last everything is made well and waited for.
 *
 *     node scripts/soak/bench-soak.ts [--minutes 10 | --seconds 60] [--seed 1] [--rate 60] [--events 150] [--accounts 200]
 *         [--burst 10000] [--chaos [--every 60]] [--control]
 *
 * Every acknowledged lead, booking and bill must arrive at both its webhooks that are well, every answer be the one that was to be
 * expected, the 99th percentiles stay within their limits, and no process grow. `--chaos` kills an API or a daemon in turn each
 * so many seconds, the database once, and adds one endpoint of every hostile kind: then an answer may fail around a kill.
 * `--control`: one receipt is not written down, which must be found. Takes its time and two minutes. Exit 1 when one is off.
 */
import { cpSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { readConfig } from '../../src/config.ts'
import { pause, runBench, withCrashStage } from '../crash/crash-stage.ts'
import { seededRandom } from '../crash/seeded-random.ts'
import { runSoak, type SoakPlan } from './soak-run.ts'
import { wholeNumber } from '../whole-number.ts'
import { judgeSoak } from './soak-verdict.ts'

/** Of a failing webhook, so that some are deleted by themselves and brought back while it lasts. */
const LIFE_CYCLE = { WARN_AFTER_SECONDS: '10', WARN_BY_CLOCK_SECONDS: '15', DELETE_AFTER_SECONDS: '20' }
/** What was idle for a minute is closed. */
const FILES = { idleMs: 15_000, more: 10, timeoutMs: 90_000 }
const WARM_UP_SECONDS = 10
const SECONDS_OF_MINUTE = 60
/** Leads and lists among the calls, of which an account has sixty a minute: also what is late must fit. */
const CRM_SHARE = 0.65
const MOST_CRM_CALLS = 40

const say = (line: string) => process.stderr.write(`bench-soak: ${line}\n`)

/** @throws a sentence about what is wrong */
function readPlan(): SoakPlan {
  const { values } = parseArgs({
    options: {
      minutes: { type: 'string' },
      seconds: { type: 'string' },
      seed: { type: 'string', default: '1' },
      rate: { type: 'string', default: '60' },
      events: { type: 'string', default: '150' },
      accounts: { type: 'string', default: '200' },
      burst: { type: 'string', default: '10000' },
      chaos: { type: 'boolean', default: false },
      every: { type: 'string', default: '60' },
      control: { type: 'boolean', default: false },
    },
  })
  const whole = (name: keyof typeof values & string, least: number, most: number, fallback = 0): number => {
    return wholeNumber(name, String(values[name] ?? fallback), least, most)
  }
  if (values.minutes !== undefined && values.seconds !== undefined) throw new Error('--minutes or --seconds, not both')
  const seconds =
    values.seconds === undefined ? whole('minutes', 1, 300, 10) * SECONDS_OF_MINUTE : whole('seconds', 5, 3600)
  const plan = {
    seconds,
    rate: whole('rate', 10, 200),
    events: whole('events', 1, 500),
    accounts: whole('accounts', 40, 1000),
    burst: whole('burst', 0, 50_000),
    killEveryMs: values.chaos ? whole('every', 5, 3600) * 1000 : undefined,
    random: seededRandom(whole('seed', 0, 999_999_999)),
    env: { ...LIFE_CYCLE, ...(process.env.LOG_LEVEL ? { LOG_LEVEL: process.env.LOG_LEVEL } : {}) },
    warmUpSeconds: WARM_UP_SECONDS,
    files: FILES,
    forgets: values.control,
  }
  if (plan.rate * SECONDS_OF_MINUTE * CRM_SHARE > plan.accounts * MOST_CRM_CALLS) {
    throw new Error(`${plan.accounts} accounts may not make ${plan.rate} calls a second: set more --accounts`)
  }
  return plan
}

async function main(): Promise<boolean> {
  let plan: SoakPlan
  try {
    plan = readPlan()
  } catch (error) {
    say((error as Error).message)
    process.exit(1)
  }
  let stopped: string | undefined
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => (stopped = signal))
  return withCrashStage(say, async ({ server, arena, receiver, ledger, scratch }) => {
    const stage = { server, arena, receiver, ledger, tls: server.tls, folder: scratch }
    const result = await Promise.race([
      runSoak(stage, plan, say, () => stopped !== undefined),
      (async (): Promise<never> => {
        while (stopped === undefined) await pause(200)
        throw new Error(`stopped by ${stopped}`)
      })(),
    ])
    const { lines, faults } = judgeSoak(result, plan)
    for (const line of lines) console.log(line)
    if (faults.length === 0) return true
    console.log(`NOT as it must be: ${faults.join(', ')}`)
    const kept = join(readConfig().dataDir, 'soak')
    rmSync(kept, { recursive: true, force: true })
    for (const part of ['ledger', 'logs']) cpSync(join(scratch, part), join(kept, part), { recursive: true })
    say(`the ledger, for check.ts, and the logs are kept in ${kept}`)
    return false
  })
}

runBench('bench-soak', main)
