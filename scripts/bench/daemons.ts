/**
 * `make bench-daemons`: four daemons share 100,000 copies, first undisturbed, then one of them stands still (SIGSTOP) for longer
 * than it takes the others to miss it, and wakes up again.
 *
 *     node scripts/bench/daemons.ts [--events 100000] [--daemons 4] [--stop-seconds 40]
 *
 * Undisturbed nothing comes twice. Of what stood still only that is sent again which was under way, and what the woken daemon
 * still has to say changes no row: each copy has one attempt on record. Takes --stop-seconds and, on a free machine, half a
 * minute. Exit 1 when one is off.
 */
import type { ChildProcess } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { monotonicMs } from '../../src/clock.ts'
import { newId } from '../../src/ids.ts'
import { BenchWorld } from './bench-world.ts'

const LABS = 20
const WEBHOOKS_OF_LAB = 5
/** Requests that one daemon can have under way, healthy and retry. */
const MOST_UNDER_WAY = 384
/** Fewer than are sent in the time: the least that any machine does. */
const LEAST_RATE = 100
const PART = 100

const { values } = parseArgs({
  options: {
    events: { type: 'string', default: '100000' },
    daemons: { type: 'string', default: '4' },
    'stop-seconds': { type: 'string', default: '40' },
  },
})
const copies = Number(values.events)
const stopMs = Number(values['stop-seconds']) * 1000
const say = (line: string) => process.stderr.write(`bench-daemons: ${line}\n`)

async function untilDelivered(world: BenchWorld, wanted: number): Promise<void> {
  const endMs = monotonicMs() + 60_000 + (wanted / LEAST_RATE) * 1000
  for (;;) {
    const [row] = await world.database.knex('deliveries').count({ n: '*' })
    if (Number(row!.n) >= wanted) return
    if (monotonicMs() > endMs) throw new Error(`${row!.n} of ${wanted} copies were delivered in time`)
    await sleep(200)
  }
}

/** Events of all labs in turn, as many as make that number of copies. @returns the copies */
async function send(world: BenchWorld, labIds: string[], wanted: number, gapMs: number): Promise<number> {
  let sent = 0
  for (let n = 0; sent < wanted; n++) {
    await world.addEvents(PART, true, labIds[n % labIds.length])
    sent += PART * WEBHOOKS_OF_LAB
    if (gapMs > 0) await sleep(gapMs)
  }
  return sent
}

interface Standing {
  /** Copies with other than one attempt, and attempts that no copy accounts for. */
  off: number
}

async function standing({ database: { knex } }: BenchWorld, copies: number): Promise<Standing> {
  const [ended] = await knex('deliveries').count({ n: '*' }).sum({ attempts: 'attempts' })
  const [lanes] = await knex('lanes').sum({ seq: 'last_seq' })
  return { off: Math.abs(Number(ended!.n) - copies) + Math.abs(Number(ended!.attempts) - copies) + Math.abs(Number(lanes!.seq) - copies) } // prettier-ignore
}

async function measure(world: BenchWorld, daemons: ChildProcess[]): Promise<boolean> {
  const labIds = Array.from({ length: LABS }, () => newId(world.clock.nowMs()))
  const ofWebhooks = labIds.flatMap((lab) => Array<string>(WEBHOOKS_OF_LAB).fill(lab))
  await world.addWebhooks(
    ofWebhooks.map((_, n) => world.url(`ok/${n}`)),
    ofWebhooks,
  )
  for (let n = 0; n < Number(values.daemons); n++) daemons.push(await world.startDaemon())
  say(`${copies} copies, undisturbed …`)
  const quiet = await send(world, labIds, copies, 0)
  await untilDelivered(world, quiet)
  const before = await world.counts()
  const first = await standing(world, quiet)
  console.log(`undisturbed: copies=${quiet} receipts=${before.receipts} twice=${before.doubled} rows that are off=${first.off}`) // prettier-ignore

  say(`one daemon stands still for ${values['stop-seconds']} s …`)
  const sending = send(world, labIds, copies / 10, stopMs / (copies / 10 / PART / WEBHOOKS_OF_LAB))
  await sleep(stopMs / 10)
  daemons[0]!.kill('SIGSTOP')
  await sleep(stopMs)
  daemons[0]!.kill('SIGCONT')
  const all = quiet + (await sending)
  await untilDelivered(world, all)
  // What the woken daemon has to say comes within its own deadlines.
  await sleep(3000)
  const after = await world.counts()
  const last = await standing(world, all)
  const again = after.doubled - before.doubled
  console.log(`one stood still: copies=${all - quiet} receipts=${after.receipts - before.receipts} sent again=${again} (at most ${MOST_UNDER_WAY}) rows that are off=${last.off}`) // prettier-ignore
  for (const daemon of daemons) await world.stopDaemon(daemon)
  const exits = daemons.map(({ exitCode }) => exitCode)
  console.log(`daemons ended with ${exits.join(', ')}`)
  const isWhole = before.receipts === quiet && after.receipts === all && first.off + last.off === 0
  return isWhole && before.doubled === 0 && again <= MOST_UNDER_WAY && exits.every((code) => code === 0)
}

async function main(): Promise<boolean> {
  const startedAtMs = monotonicMs()
  const world = await BenchWorld.open()
  const daemons: ChildProcess[] = []
  try {
    const isRight = await measure(world, daemons)
    const seconds = Math.round((monotonicMs() - startedAtMs) / 1000)
    console.log(`bench-daemons: ${seconds} s, ${isRight ? 'all as it must be' : 'NOT as it must be'}`)
    return isRight
  } finally {
    for (const daemon of daemons) daemon.kill('SIGKILL')
    await world.close()
  }
}

main().then(
  (isRight) => process.exit(isRight ? 0 : 1),
  (error: Error) => {
    process.stderr.write(`bench-daemons: ${error.stack}\n`)
    process.exit(1)
  },
)
