/**
 * `make bench-races`: what must hold when requests meet, over three API processes, each with connections of its own, on one
 * database. A private MariaDB where MYSQL_URL is not set; else a database of its own on that server, dropped at the end.
 *
 *     node scripts/races/bench-races.ts [--rounds 200] [--seed 1] [--only M1,M5] [--minutes 2]
 *
 * The calls of a round are written but their last bytes, and these are sent at the same moment. M7 lasts --minutes at least, 10
 * for its full form. M3 and the clock's part of M7 need libfaketime and a database of our own. Prints counts; exit 1 when one is off.
 */
import { randomBytes } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { connectDatabase } from '../../db/connection.ts'
import { migrate } from '../../db/migrate.ts'
import { processClock } from '../../src/clock.ts'
import { createLogger } from '../../src/logger.ts'
import { CrashArena } from '../crash/crash-arena.ts'
import { CrashServer } from '../crash/crash-server.ts'
import { runBench } from '../crash/crash-stage.ts'
import { FakeTime, findFakeTime } from '../crash/fake-time.ts'
import { seededRandom } from '../crash/seeded-random.ts'
import { makeSureOfDevTls } from '../dev-tls.ts'
import { usableArguments, wholeNumber } from '../whole-number.ts'
import { RaceWorld, type RaceOptions } from './race-world.ts'
import { RACES } from './races.ts'

const say = (line: string) => process.stderr.write(`bench-races: ${line}\n`)

const OPTIONS = {
  rounds: { type: 'string', default: '200' },
  seed: { type: 'string', default: '1' },
  minutes: { type: 'string', default: '2' },
  only: { type: 'string' },
} as const

function readArguments() {
  const { values } = parseArgs({ options: OPTIONS })
  const minutes = Number(values.minutes)
  if (!(minutes >= 1 && minutes <= 600)) throw new Error('--minutes must be a number from 1 to 600')
  const known = RACES.map(({ id }) => id)
  const only = values.only?.split(',') ?? known
  const unknown = only.filter((id) => !known.includes(id))
  if (unknown.length > 0) throw new Error(`--only knows no ${unknown.join(', ')}: there are ${known.join(', ')}`)
  return {
    rounds: wholeNumber('rounds', values.rounds, 1, 100_000),
    seed: wholeNumber('seed', values.seed, 0, 999_999_999),
    minutes,
    only,
  }
}

/** The races in turn. @returns whether all is as it must be */
async function run(world: RaceWorld, args: ReturnType<typeof readArguments>): Promise<boolean> {
  let isRight = true
  for (const race of RACES.filter(({ id }) => args.only.includes(id))) {
    say(`${race.id}: ${race.title} …`)
    const options: RaceOptions = { rounds: args.rounds, minutes: args.minutes, random: seededRandom(args.seed), say }
    const tally = await race.run(world, options)
    for (const line of tally.lines(race.id)) console.log(line)
    isRight &&= tally.faults.length === 0
  }
  return isRight
}

async function withWorld<T>(
  mysqlUrl: string,
  folder: string,
  tls: CrashServer['tls'],
  clock: FakeTime | undefined,
  work: (world: RaceWorld) => Promise<T>,
): Promise<T> {
  const arena = await CrashArena.open(mysqlUrl, folder, tls)
  try {
    const world = await RaceWorld.open(arena, folder, clock)
    try {
      return await work(world)
    } finally {
      world.close()
    }
  } finally {
    await arena.close()
  }
}

/** A database of our own on somebody else's server. */
async function onServer<T>(serverUrl: string, work: (world: RaceWorld) => Promise<T>): Promise<T> {
  const url = new URL(serverUrl)
  const name = `lis_races_${randomBytes(5).toString('hex')}`
  url.pathname = `/${name}`
  const folder = mkdtempSync(join(tmpdir(), 'lis-races-'))
  try {
    await migrate(url.href, createLogger('migrate', 'warn'))
    const tls = await makeSureOfDevTls(folder, processClock.nowMs())
    return await withWorld(url.href, folder, tls, undefined, work)
  } finally {
    const database = connectDatabase(url.href, 1)
    await database.knex.raw('DROP DATABASE IF EXISTS ??', [name]).catch((error: Error) => say(error.message))
    await database.close()
    rmSync(folder, { recursive: true, force: true })
  }
}

async function onPrivateServer<T>(work: (world: RaceWorld) => Promise<T>): Promise<T> {
  const library = findFakeTime()
  const clock = library === undefined ? undefined : new FakeTime(library)
  const start = () => CrashServer.start()
  try {
    const server = await (clock ? clock.around(start) : start())
    try {
      return await withWorld(await server.newDatabase(), server.folder, server.tls, clock, work)
    } finally {
      await server.close()
    }
  } finally {
    clock?.remove()
  }
}

const interrupted = new Promise<never>((_, reject) => {
  for (const signal of ['SIGINT', 'SIGTERM'] as const)
    process.once(signal, () => reject(new Error(`stopped by ${signal}`)))
})
interrupted.catch(() => {})

const args = usableArguments('bench-races', readArguments)
runBench('bench-races', () => {
  const work = (world: RaceWorld) => Promise.race([run(world, args), interrupted])
  const serverUrl = process.env.MYSQL_URL
  return serverUrl ? onServer(serverUrl, work) : onPrivateServer(work)
})
