/**
 * `make bench-crash`: every crash point, and kills at random under load. Real processes, killed from outside.
 *
 *     node scripts/crash/bench-crash.ts [--kills 150] [--seed 1] [--random-only]
 *
 * Half a minute for the points and about 1.5 s a kill, more on a busy machine; nothing is waited for without a limit.
 * Prints counts; exit 1 when one is off. The ledger of the random kills stays in DATA_DIR/crash-ledger, for `check.ts`.
 */
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { monotonicMs } from '../../src/clock.ts'
import { readConfig } from '../../src/config.ts'
import { CrashArena } from './crash-arena.ts'
import { CRASH_POINTS, type CrashPoint, type Stage } from './crash-points.ts'
import { CrashServer } from './crash-server.ts'
import { startHookedReceiver } from './hooked-receiver.ts'
import { complaints, isSound, summary } from './ledger-check.ts'
import { startMailSink } from './mail-sink.ts'
import { MIGRATION_KILLS, runMigrationPoints } from './migration-points.ts'
import { killAtRandom } from './random-kills.ts'
import { seededRandom } from './seeded-random.ts'

/** Of the kills this share is spent on the crash points, the rest at random. */
const POINTS_SHARE = 0.3
/** Services side by side for the points. */
const STAGES = { api: 1, daemon: 3, mail: 1 }

const { values } = parseArgs({
  options: {
    kills: { type: 'string', default: '150' },
    seed: { type: 'string', default: '1' },
    'random-only': { type: 'boolean', default: false },
  },
})
const kills = Number(values.kills)
const say = (line: string) => process.stderr.write(`bench-crash: ${line}\n`)

interface Tally {
  runs: number
  faults: string[]
}

async function runPoints(server: CrashServer, rounds: number): Promise<Map<string, Tally>> {
  const tallies = new Map(CRASH_POINTS.map(({ name }) => [name, { runs: 0, faults: [] as string[] }]))
  const all = Array.from({ length: rounds }, () => CRASH_POINTS).flat()
  const lines = (Object.keys(STAGES) as CrashPoint['process'][]).flatMap((process) => {
    const queue = all.filter((point) => point.process === process)
    return Array.from({ length: STAGES[process] }, (_, n) => ({ name: `${process}-${n}`, queue }))
  })
  await Promise.all(lines.map(({ name, queue }) => runLine(server, name, queue, tallies)))
  return tallies
}

/** Takes points from the shared queue until it is empty, on a stage of its own. */
async function runLine(
  server: CrashServer,
  name: string,
  queue: CrashPoint[],
  tallies: Map<string, Tally>,
): Promise<void> {
  const receiver = await startHookedReceiver(server.tls)
  const mails = await startMailSink()
  const arena = await CrashArena.open(await server.newDatabase(), join(server.folder, name), server.tls)
  const stage: Stage = { arena, receiver, mails }
  try {
    for (let point = queue.shift(); point; point = queue.shift()) {
      const tally = tallies.get(point.name)!
      tally.runs++
      await point.run(stage).catch((error: Error) => {
        tally.faults.push(error.message)
        say(`${point!.name}: ${error.message}`)
        // What is still armed in it would be this point's fault in the next one.
        for (const part of ['api', 'daemon'] as const) {
          stage[part]?.kill()
          delete stage[part]
        }
      })
    }
  } finally {
    await arena.close()
    receiver.close()
    await mails.close()
  }
}

async function runAllPoints(server: CrashServer): Promise<Map<string, Tally>> {
  const rounds = Math.max(1, Math.round((kills * POINTS_SHARE - MIGRATION_KILLS) / CRASH_POINTS.length))
  say(`${CRASH_POINTS.length} crash points, ${rounds} times each …`)
  const [tallies, migrations] = await Promise.all([runPoints(server, rounds), runMigrationPoints(server)])
  return tallies.set('migrate.step', migrations)
}

/** @returns whether all is as it must be */
async function main(): Promise<boolean> {
  const startedAtMs = monotonicMs()
  const ledgerFolder = join(readConfig().dataDir, 'crash-ledger')
  rmSync(ledgerFolder, { recursive: true, force: true })
  const server = await CrashServer.start()
  let isRight = true
  try {
    const tallies = values['random-only'] ? new Map<string, Tally>() : await runAllPoints(server)
    for (const [name, { runs, faults }] of tallies) {
      console.log(
        `${name.padEnd(34)} kills=${runs} as allowed=${runs - faults.length}${faults[0] ? `  ${faults[0]}` : ''}`,
      )
      isRight &&= faults.length === 0
    }
    const spent = [...tallies.values()].reduce((sum, { runs }) => sum + runs, 0)
    const left = Math.max(0, kills - spent)
    say(`${left} kills at random under load, seed ${values.seed} …`)
    const result = await killAtRandom(server, left, seededRandom(Number(values.seed)), ledgerFolder, say)
    const { verdict } = result
    console.log(
      `random kills                       api=${result.kills.api} daemon=${result.kills.daemon} database=${result.kills.database}`,
    )
    console.log(`acknowledged=${verdict.acknowledged} in doubt=${verdict.inDoubt} delivered=${verdict.delivered}`)
    console.log(summary(verdict))
    for (const line of complaints(verdict)) console.log(line)
    console.log(
      `in flight or not yet recorded at the kills=${verdict.inFlight} (answers at most ${Math.round(verdict.oldestUnrecordedMs)} ms old) tried again after at most ${Math.round(verdict.slowestRetryMs)} ms, while the killing went on, late=${verdict.late.length}`,
    )
    console.log(
      `failures without a kill=${result.unprovoked} first success after the database's return: ${Math.round(result.slowestRecoveryMs)} ms at most`,
    )
    isRight &&= isSound(verdict) && verdict.late.length === 0
    isRight &&= verdict.explained <= verdict.inFlight && result.unprovoked === 0
    console.log(
      `bench-crash: ${spent + left} kills in ${Math.round((monotonicMs() - startedAtMs) / 1000)} s, ${isRight ? 'all as it must be' : 'NOT as it must be'}`,
    )
  } finally {
    await server.close()
  }
  return isRight
}

main().then(
  (isRight) => process.exit(isRight ? 0 : 1),
  (error: Error) => {
    say(error.stack ?? error.message)
    process.exit(1)
  },
)
