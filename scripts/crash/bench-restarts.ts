/**
 * `make bench-restarts`: rolling restarts under load. Two APIs share one port and are replaced one after the other, then the
 * daemon; each is told to stop, nobody is killed, and two of three are told a second time while they stop. At last a daemon all of
 * whose endpoints hang.
 *
 *     node scripts/crash/bench-restarts.ts [--rolls 10] [--rate 60]
 *
 * Every call must succeed, every event arrive exactly once, and every process end with 0 within 15 s, told twice or not. About six seconds a roll,
 * more on a busy machine, and at most a minute and a half each. Exit 1 otherwise.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer, type AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { monotonicMs } from '../../src/clock.ts'
import { usableArguments, wholeNumber } from '../whole-number.ts'
import { CrashArena, isDry, until, type CrashProcess, type Tenant } from './crash-arena.ts'
import { CrashLoad, writeEvents } from './crash-load.ts'
import { CrashServer } from './crash-server.ts'
import { startHookedReceiver, type HookedReceiver } from './hooked-receiver.ts'
import { complaints, isSound, judge, readEvidence, summary } from './ledger-check.ts'
import { Ledger } from './ledger.ts'

const ENDS_WITHIN_MS = 15_000
/** From an event to its receipt by the next daemon. */
const NEXT_ATTEMPT_WITHIN_MS = 2000
const HANGING = 20
/** A roll that takes longer is stuck. */
const ROLL_WITHIN_MS = 90_000
/** Between two restarts, so that each meets a service at work. */
const BREATH_MS = 300

const [rolls, rate] = usableArguments('bench-restarts', () => {
  const { values } = parseArgs({
    options: { rolls: { type: 'string', default: '10' }, rate: { type: 'string', default: '60' } },
  })
  return [wholeNumber('rolls', values.rolls, 1, 10_000), wholeNumber('rate', values.rate, 1, 2000)] as const
})
const say = (line: string) => process.stderr.write(`bench-restarts: ${line}\n`)

interface Stops {
  count: number
  /** Told a second time before they had ended. */
  again: number
  slowestMs: number
  /** How those ended that did not end with 0. */
  faults: string[]
}

/** What somebody impatient sends a process that stops. */
const AGAIN: (NodeJS.Signals | undefined)[] = ['SIGTERM', 'SIGINT', undefined]
const AGAIN_AFTER_MS = 50

async function stopOne(running: CrashProcess, stops: Stops, again = AGAIN[stops.count % AGAIN.length]): Promise<void> {
  const startedAtMs = monotonicMs()
  const stopped = running.stop()
  if (again) {
    await Promise.race([stopped, new Promise((resolve) => setTimeout(resolve, AGAIN_AFTER_MS))])
    if (running.signal(again)) stops.again++
  }
  await stopped
  const how = await running.service.ended
  stops.count++
  stops.slowestMs = Math.max(stops.slowestMs, monotonicMs() - startedAtMs)
  if (how !== 'code 0') stops.faults.push(how)
}

async function freePort(): Promise<number> {
  const server = createServer()
  return new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address() as AddressInfo
      server.close(() => resolve(port))
    })
  })
}

/** @returns the daemon that runs at the end */
async function roll(
  arena: CrashArena,
  load: CrashLoad,
  port: number,
  stops: { api: Stops; daemon: Stops },
): Promise<CrashProcess> {
  const env = { PORT: String(port), REUSE_PORT: 'true' }
  const apis = [await arena.startApi(env), await arena.startApi(env)]
  let daemon = await arena.startDaemon()
  load.start()
  for (let n = 1; n <= rolls; n++) {
    const startedAtMs = monotonicMs()
    for (const [place, api] of apis.entries()) {
      await stopOne(api, stops.api)
      apis[place] = await arena.startApi(env)
      await new Promise((resolve) => setTimeout(resolve, BREATH_MS))
    }
    await stopOne(daemon, stops.daemon)
    daemon = await arena.startDaemon()
    await new Promise((resolve) => setTimeout(resolve, BREATH_MS))
    if (n % 5 === 0) say(`${n} of ${rolls} rolls`)
    if (monotonicMs() - startedAtMs > ROLL_WITHIN_MS) throw new Error(`roll ${n} took more than ${ROLL_WITHIN_MS} ms`)
  }
  await load.stop()
  return daemon
}

/** A daemon is told to stop while every endpoint hangs; its lanes are the next one's at once. @returns whether it went well */
async function stopWhileHanging(arena: CrashArena, receiver: HookedReceiver, daemon: CrashProcess): Promise<boolean> {
  say(`a stop while ${HANGING} endpoints hang …`)
  const webhooks: string[] = []
  const tenants: Tenant[] = []
  for (let n = 0; n < HANGING; n++) {
    const tenant = await arena.addTenant()
    const webhook = await arena.addWebhook(tenant, receiver.urlOf)
    receiver.behaviours.set(webhook, () => 'never')
    await arena.addEvent(tenant)
    webhooks.push(webhook)
    tenants.push(tenant)
  }
  const seen = () => new Set(receiver.receipts.map(({ webhook }) => webhook))
  await until('each has a request under way', () => webhooks.every((webhook) => seen().has(webhook)))
  const next = await arena.startDaemon()
  const stops: Stops = { count: 0, again: 0, slowestMs: 0, faults: [] }
  await stopOne(daemon, stops, 'SIGTERM')
  for (const webhook of webhooks) receiver.behaviours.set(webhook, () => 204)
  const addedAtMs = new Map<string, number>()
  for (const tenant of tenants) addedAtMs.set(await arena.addEvent(tenant), monotonicMs())
  const arrived = () => receiver.receipts.filter(({ event }) => addedAtMs.has(event))
  await until('the next daemon has every lane', () => arrived().length >= HANGING)
  const slowestMs = Math.max(...arrived().map(({ event, atMs }) => atMs - addedAtMs.get(event)!))
  await next.stop()
  console.log(
    `stop while all hang: told twice=${stops.again === 1} ended with 0=${stops.faults.length === 0} after ${Math.round(stops.slowestMs)} ms, ` +
      `the next daemon sends after ${Math.round(slowestMs)} ms at most`,
  )
  return (
    stops.again === 1 &&
    stops.faults.length === 0 &&
    stops.slowestMs < ENDS_WITHIN_MS &&
    slowestMs <= NEXT_ATTEMPT_WITHIN_MS
  )
}

/** @returns whether all is as it must be */
async function main(): Promise<boolean> {
  const startedAtMs = monotonicMs()
  const scratch = mkdtempSync(join(tmpdir(), 'lis-restarts-'))
  const server = await CrashServer.start()
  const ledger = new Ledger(scratch)
  const receiver = await startHookedReceiver(server.tls, ledger)
  const arena = await CrashArena.open(await server.newDatabase(), join(server.folder, 'restarts'), server.tls)
  try {
    const port = await freePort()
    const target = () => ({ url: `http://127.0.0.1:${port}`, pid: 0 })
    const load = await CrashLoad.prepare({ arena, receiver, ledger, rate, target })
    const newStops = (): Stops => ({ count: 0, again: 0, slowestMs: 0, faults: [] })
    const stops = { api: newStops(), daemon: newStops() }
    const daemon = await roll(arena, load, port, stops)
    await until('everything is delivered', () => isDry(arena.database), 60_000)
    await writeEvents(arena, ledger)
    const evidence = readEvidence(scratch)
    const verdict = judge(evidence)
    const failed = evidence.clients.filter(({ status }) => status !== 200)
    const ends = Object.entries(stops).map(
      ([name, { count, again, slowestMs, faults }]) =>
        `${name} stops=${count} told twice=${again} not with 0=${faults.length} slowest=${Math.round(slowestMs)} ms`,
    )
    console.log(`calls=${evidence.clients.length} failed=${failed.length} ${ends.join(' ')}`)
    console.log(summary(verdict))
    for (const line of complaints(verdict)) console.log(line)
    for (const one of failed.slice(0, 5))
      console.log(`failed: ${one.status ?? 'broken'} after ${Math.round(one.endedAtMs - one.sentAtMs)} ms`)
    const isFreed = await stopWhileHanging(arena, receiver, daemon)
    const isRight =
      isFreed &&
      failed.length === 0 &&
      isSound(verdict) &&
      verdict.explained === 0 &&
      [stops.api, stops.daemon].every(({ faults, slowestMs }) => faults.length === 0 && slowestMs < ENDS_WITHIN_MS)
    const seconds = Math.round((monotonicMs() - startedAtMs) / 1000)
    console.log(
      `bench-restarts: ${rolls} rolls in ${seconds} s, ${isRight ? 'all as it must be' : 'NOT as it must be'}`,
    )
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
