/**
 * `make bench-job-store`: the daemons' job store under load: stopped, slow, gone, wiped, set back to an old copy, and full of
 * jobs that somebody who is gone has locked.
 *
 *     node scripts/crash/bench-job-store.ts [--seconds 60] [--rate 20]
 *
 * A job is a hint: every call is answered 200, nothing is lost, nothing comes twice, no event is late, and afterwards the
 * store is used again. Takes six times --seconds and a minute. Exit 1 when that is not so; says so where FerretDB can't be
 * built (it needs Go).
 */
import { MongoClient, type Collection } from 'mongodb'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { monotonicMs } from '../../src/clock.ts'
import { isDry, until } from './crash-arena.ts'
import { CrashLoad, writeEvents } from './crash-load.ts'
import { delaysIn, pause, runBench, shareOf, withCrashStage, type CrashStage } from './crash-stage.ts'
import { JobStoreServer } from './job-store-server.ts'
import { complaints, isSound, judge, readEvidence, summary, type Evidence } from './ledger-check.ts'

const DAEMONS = 3
/** An account's turn comes so seldom that its lanes get dry in between, and are taken anew for each of its events. */
const TURN_SECONDS = 4
/** Longer than a lane listens: a retry needs a job, where a fan-out runs the lanes that it takes by itself. */
const RETRY_SCHEDULE = '1.6,1.6,1.6'
/** Of the way from the answer to the receipt, while the store is ill. */
const WORST_P99_MS = 5000
const WORST_MS = 30_000
const USED_AGAIN_WITHIN_MS = 60_000
const WIPE_EACH_MS = 100
/** When the stale jobs would run: after the run is over. */
const FAR_AHEAD_MS = 10 * 60_000

const { values } = parseArgs({
  options: { seconds: { type: 'string', default: '60' }, rate: { type: 'string', default: '20' } },
})
const lastsMs = Number(values.seconds) * 1000
const say = (line: string) => process.stderr.write(`bench-job-store: ${line}\n`)

interface FaultStage {
  store: JobStoreServer
  jobs: Collection
  webhooks: string[]
}

interface Fault {
  name: string
  run(stage: FaultStage): Promise<void>
}

const laneJob = (webhook: string, lockedAt: Date | null, nextRunAt: Date) => ({
  name: 'deliver-webhook',
  priority: 0,
  type: 'normal',
  data: { webhook },
  ...{ lockedAt, nextRunAt, lastModifiedBy: 'a daemon of before' },
})

/** Puts those jobs in the place of what is there. */
async function replaceJobs(jobs: Collection, wanted: object[]): Promise<void> {
  const isWiped = () =>
    jobs.deleteMany({}).then(
      () => true,
      () => false,
    )
  await until('the store is wiped', isWiped)
  // One that a daemon has saved meanwhile stays: the key is unique.
  await jobs.insertMany(wanted, { ordered: false }).catch(() => {})
}

const FAULTS: Fault[] = [
  { name: 'stopped (SIGSTOP)', run: ({ store }) => store.stopFor(lastsMs) },
  { name: 'slow (a tenth)', run: ({ store }) => store.slowFor(lastsMs) },
  { name: 'gone (kill -9)', run: ({ store }) => store.goneFor(lastsMs) },
  {
    name: 'wiped again and again',
    async run({ jobs }) {
      for (const endMs = monotonicMs() + lastsMs; monotonicMs() < endMs;) {
        await Promise.all([jobs.deleteMany({}).catch(() => {}), pause(WIPE_EACH_MS)])
      }
    },
  },
  {
    // As a copy of yesterday is: each job due, of webhooks that are there and of some that are not.
    name: 'set back to a copy',
    async run({ jobs, webhooks }) {
      const gone = Array.from({ length: 20 }, (_, n) => `gone-${n}`)
      await replaceJobs(jobs, [...webhooks, ...gone].map((webhook) => laneJob(webhook, null, new Date(0)))) // prettier-ignore
      await pause(lastsMs)
    },
  },
  {
    // A recurring job that is locked and due far ahead is what Agenda leaves behind at a kill.
    name: 'stale locks',
    async run({ jobs, webhooks }) {
      const now = Date.now()
      const locked = webhooks.map((webhook) => laneJob(webhook, new Date(now), new Date(now + FAR_AHEAD_MS)))
      await replaceJobs(jobs, locked)
      await pause(lastsMs)
    },
  },
]

interface Seen {
  name: string
  atMs: number
  untilMs: number
  usedAgainMs: number
}

/** Until a daemon takes a job out of the store again. */
async function usedAgain(jobs: Collection): Promise<number> {
  const fromMs = monotonicMs()
  const since = new Date()
  const isUsed = () =>
    jobs.findOne({ lockedAt: { $gt: since } }).then(
      (job) => job !== null,
      () => false,
    )
  await until('the store is used again', isUsed, USED_AGAIN_WITHIN_MS)
  return monotonicMs() - fromMs
}

function report(evidence: Evidence, { name, atMs, untilMs, usedAgainMs }: Seen): boolean {
  const calls = evidence.clients.filter(({ endedAtMs }) => endedAtMs >= atMs && endedAtMs < untilMs)
  const failed = calls.filter(({ status }) => status !== 200).length
  const delays = delaysIn(evidence, atMs, untilMs)
  const [p99, worst] = [shareOf(delays, 0.99), shareOf(delays, 1)]
  console.log(
    `${name.padEnd(22)} lasted=${ms(untilMs - atMs)} calls=${calls.length} failed=${failed} ` +
      `receipts=${delays.length} p50=${ms(shareOf(delays, 0.5))} p99=${ms(p99)} slowest=${ms(worst)} used again after=${ms(usedAgainMs)}`,
  )
  return failed === 0 && delays.length > 0 && p99 <= WORST_P99_MS && worst <= WORST_MS
}

const ms = (value: number) => `${Math.round(value)} ms`

/** Of this webhook the first request of each event: few enough to leave the 99th percentile alone. */
function refuseFirst({ behaviours }: CrashStage['receiver'], webhook: string): void {
  const refused = new Set<string>()
  behaviours.set(webhook, ({ event }) => {
    if (refused.has(event)) return 204
    refused.add(event)
    return 500
  })
}

async function runFaults(stage: CrashStage, store: JobStoreServer): Promise<boolean> {
  const { arena, receiver, ledger } = stage
  const client = await MongoClient.connect(store.url, { serverSelectionTimeoutMS: 2000, socketTimeoutMS: 3000 })
  const jobs = client.db().collection('agendaJobs')
  const api = await arena.startApi()
  for (let n = 0; n < DAEMONS; n++) await arena.startDaemon({ MONGODB_URL: store.url, RETRY_SCHEDULE })
  const target = () => ({ url: api.url, pid: api.service.pid })
  const rate = Number(values.rate)
  const load = await CrashLoad.prepare({ arena, receiver, ledger, rate, target, accounts: rate * TURN_SECONDS })
  const webhooks = await arena.database.knex('webhooks').pluck('id')
  refuseFirst(receiver, webhooks[0]!)
  load.start()
  const seen: Seen[] = []
  try {
    await usedAgain(jobs)
    for (const fault of [{ name: 'quiet', run: () => pause(lastsMs) }, ...FAULTS]) {
      say(`${fault.name}, ${values.seconds} s …`)
      const atMs = monotonicMs()
      await fault.run({ store, jobs, webhooks })
      const untilMs = monotonicMs()
      seen.push({ name: fault.name, atMs, untilMs, usedAgainMs: await usedAgain(jobs) })
    }
  } finally {
    await load.stop()
    await client.close()
  }
  await until('everything is delivered', () => isDry(arena.database), 60_000)
  await writeEvents(arena, ledger)
  const evidence = readEvidence(ledger.folder)
  const isRight = seen.map((one) => report(evidence, one)).every(Boolean)
  const verdict = judge(evidence)
  console.log(`acknowledged=${verdict.acknowledged} delivered=${verdict.delivered} ${summary(verdict)}`)
  for (const line of complaints(verdict)) console.log(line)
  return isRight && isSound(verdict) && verdict.explained === 0
}

runBench('bench-job-store', () =>
  withCrashStage(say, async (stage) => {
    let store: JobStoreServer
    try {
      store = new JobStoreServer(join(stage.scratch, 'ferretdb'))
    } catch {
      console.log('job store            SKIPPED: FerretDB could not be had on this machine (see above)')
      return true
    }
    try {
      return await runFaults(stage, store)
    } finally {
      store.close()
    }
  }),
)
