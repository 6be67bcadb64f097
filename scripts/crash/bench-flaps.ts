/**
 * `make bench-flaps`: no fault at all, and everything at its most awkward: endpoints that fail and recover every few seconds, and
 * a database whose answers are late, those to a fan-out later than others. Nothing is killed, so nothing may come twice.
 *
 *     node scripts/crash/bench-flaps.ts [--seconds 60] [--daemons 2] [--rate 12]
 *
 * Half of the webhooks fail for 7 s and answer for 3, or for 700 ms and 300; the others are well, and one of their events may wait
 * for its first receipt as long as --wait says. Exit 1 otherwise.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { monotonicMs } from '../../src/clock.ts'
import { CrashArena, isDry, until } from './crash-arena.ts'
import { CrashLoad, writeEvents } from './crash-load.ts'
import { CrashServer } from './crash-server.ts'
import { startHookedReceiver, type HookedReceiver } from './hooked-receiver.ts'
import { complaints, isSound, judge, readEvidence, summary, type Evidence } from './ledger-check.ts'
import { Ledger, readLedger } from './ledger.ts'

/** Of the daemons' statements, in milliseconds: each, and those that fan one event out. */
const ANSWER_MS = [1, 20] as const
const FAN_OUT_MS = [20, 500] as const
const FAN_OUT = /INTO @event/
/** Bad and good times of the webhooks, taking turns; undefined: always good. */
const PATTERNS = [undefined, { badMs: 7000, goodMs: 3000 }, undefined, { badMs: 700, goodMs: 300 }]

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '60' },
    daemons: { type: 'string', default: '2' },
    rate: { type: 'string', default: '12' },
    wait: { type: 'string', default: '5000' },
  },
})
const [seconds, daemons, rate, waitMs] = [values.seconds, values.daemons, values.rate, values.wait].map(Number) as [
  number,
  number,
  number,
  number,
]
const say = (line: string) => process.stderr.write(`bench-flaps: ${line}\n`)

const between = ([from, to]: readonly [number, number]) => from + Math.random() * (to - from)

/** @returns the webhooks that are always well */
function makeFlap(receiver: HookedReceiver, webhooks: string[], isOver: () => boolean): Set<string> {
  const well = new Set<string>()
  for (const [n, webhook] of webhooks.entries()) {
    const pattern = PATTERNS[n % PATTERNS.length]
    if (!pattern) {
      well.add(webhook)
      continue
    }
    const { badMs, goodMs } = pattern
    const shiftMs = Math.random() * (badMs + goodMs)
    receiver.behaviours.set(webhook, () =>
      isOver() || (monotonicMs() + shiftMs) % (badMs + goodMs) >= badMs ? 204 : 503,
    )
  }
  return well
}

/** From the answer to the client, the longest. */
function longestWaitMs({ clients, events, receipts }: Evidence, well: Set<string>): number {
  const eventOf = new Map(events.map(({ lead, event }) => [lead, event]))
  const firstAtMs = new Map<string, number>()
  for (const { webhook, event, atMs } of receipts) {
    const copy = `${webhook} ${event}`
    if (well.has(webhook)) firstAtMs.set(copy, Math.min(atMs, firstAtMs.get(copy) ?? Infinity))
  }
  const answeredAtMs = new Map(clients.map(({ leadId, endedAtMs }) => [eventOf.get(leadId ?? ''), endedAtMs]))
  const waits = [...firstAtMs].map(([copy, atMs]) => atMs - (answeredAtMs.get(copy.split(' ')[1]!) ?? atMs))
  return Math.max(0, ...waits)
}

/** @returns whether all is as it must be */
async function main(): Promise<boolean> {
  const scratch = mkdtempSync(join(tmpdir(), 'lis-flaps-'))
  const server = await CrashServer.start()
  const ledger = new Ledger(scratch)
  const receiver = await startHookedReceiver(server.tls, ledger)
  const arena = await CrashArena.open(await server.newDatabase(), join(server.folder, 'flaps'), server.tls)
  try {
    const api = await arena.startApi()
    const load = await CrashLoad.prepare({ arena, receiver, ledger, rate, target: () => ({ url: api.url, pid: 0 }) })
    const env = { RETRY_SCHEDULE: `5${',10'.repeat(60)}` }
    for (let n = 0; n < daemons; n++) {
      const { proxy } = await arena.startDaemon(env)
      proxy.delayOf = (text) => between(FAN_OUT.test(text) ? FAN_OUT_MS : ANSWER_MS)
    }
    let isOver = false
    const webhooks = readLedger(scratch, 'webhooks').map(({ webhook }) => webhook)
    const well = makeFlap(receiver, webhooks, () => isOver)
    say(`${webhooks.length} webhooks, ${webhooks.length - well.size} of which fail and recover, for ${seconds} s …`)
    load.start()
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000))
    await load.stop()
    isOver = true
    await until('everything is delivered', () => isDry(arena.database), 90_000)
    await writeEvents(arena, ledger)
    const evidence = readEvidence(scratch)
    const verdict = judge(evidence)
    const failed = evidence.receipts.filter(({ answered }) => answered?.status === 503).length
    const waited = longestWaitMs(evidence, well)
    console.log(summary(verdict))
    for (const line of complaints(verdict)) console.log(line)
    console.log(`attempts that failed=${failed}, a healthy webhook waited ${Math.round(waited)} ms at most`)
    const isRight = isSound(verdict) && verdict.explained === 0 && failed > 0 && waited <= waitMs
    console.log(`bench-flaps: ${daemons} daemons, ${isRight ? 'all as it must be' : 'NOT as it must be'}`)
    return isRight
  } finally {
    await arena.close()
    receiver.close()
    ledger.close()
    await server.close()
    rmSync(scratch, { recursive: true, force: true })
  }
}

main().then(
  (isRight) => process.exit(isRight ? 0 : 1),
  (error: Error) => {
    say(error.stack ?? error.message)
    process.exit(1)
  },
)
