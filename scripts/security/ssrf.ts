/**
 * `make bench-ssrf`: a real daemon with the settings of production, in a network of its own where every refused address has a
 * canary that hears each connection. Webhooks lead there by their literal address, by names, by redirects and by a name that
 * changes between question and connection. Exit 1 when a canary was touched, or when what is public was not reached.
 *
 * `--rounds n`: of the rebinding name, 1,000 by default.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { monotonicMs, processClock } from '../../src/clock.ts'
import { newId } from '../../src/ids.ts'
import { createAddressPolicy, refusedEndpoint } from '../../src/webhooks/endpoint-address.ts'
import { BenchWorld } from '../bench/bench-world.ts'
import { makeSureOfDevTls } from '../dev-tls.ts'
import { Canaries, PUBLIC } from './canaries.ts'
import { startNameServer } from './name-server.ts'
import { connectionsTried, namespaceFault, runInNamespace } from './network-namespace.ts'
import { ATTACKS, lyingAnswers, PERMITTED, PERMITTED_NAMES, REBINDING, REFUSED, type Attack } from './ssrf-endpoints.ts'

const DEFAULT_ROUNDS = 1000
/** Some of what is refused is only given up with its attempt. */
const SLOWEST_MS = 60_000
/** Besides 10 ms for each round. */
const ROUND_MS = 100
/** Nobody listens there. */
const NOWHERE = '127.0.0.1:9'

interface Sent extends Attack {
  webhookIds: string[]
  copies: number
}

/** A lab of its own for each, so that each gets its own events. */
async function send(world: BenchWorld, attack: Attack, events: number): Promise<Sent> {
  const labId = newId(world.clock.nowMs())
  const webhookIds = await world.addWebhooks(
    attack.endpoints,
    attack.endpoints.map(() => labId),
  )
  await world.addEvents(events, true, labId)
  return { ...attack, webhookIds, copies: attack.endpoints.length * events }
}

/** A second one follows where the rebinding name led to a success after a failure. */
async function untilFirstAttempts(world: BenchWorld, copies: number, timeoutMs: number): Promise<void> {
  for (const untilMs = monotonicMs() + timeoutMs; ;) {
    const [row] = await world.database.knex('attempts').where({ n: 1 }).count({ count: '*' })
    if (Number(row!.count) >= copies) return
    if (monotonicMs() > untilMs) throw new Error(`${row!.count} of ${copies} first attempts were recorded in time`)
    await sleep(100)
  }
}

/** @returns what is not as it must be, and how many attempts there were */
async function judge(world: BenchWorld, sent: Sent[]): Promise<{ faults: string[]; attempts: number }> {
  const faults: string[] = []
  let attempts = 0
  console.log('| endpoints | webhooks | copies | attempts, as recorded |\n|---|---|---|---|')
  for (const { name, webhookIds, copies, recordedAs } of sent) {
    const rows: { class: string; n: number }[] = await world.database
      .knex('attempts')
      .whereIn('webhook_id', webhookIds)
      .groupBy('class')
      .orderBy('class')
      .select('class')
      .count({ n: '*' })
    const seen = rows.map((row) => `${row.class}=${row.n}`).join(' ')
    attempts += rows.reduce((sum, { n }) => sum + Number(n), 0)
    console.log(`| ${[name, webhookIds.length, copies, seen].join(' | ')} |`)
    if (rows.map((row) => row.class).join() !== recordedAs.join()) faults.push(`${name}: ${seen}`)
  }
  return { faults, attempts }
}

/** What the API says to somebody who registers such an endpoint. */
function registered(): string[] {
  const policy = createAddressPolicy()
  const literals = ATTACKS.filter(({ isLiteral }) => isLiteral).flatMap(({ endpoints }) => endpoints)
  return literals.filter((endpoint) => refusedEndpoint(endpoint, policy) === undefined)
}

/** Touches each canary once, to see that it would tell. */
async function tryCanaries(canaries: Canaries): Promise<void> {
  const others: string[] = []
  for (const address of REFUSED) if (!(await canaries.canBeTouched(address))) others.push(address)
  console.log(
    `canaries: ${REFUSED.length} addresses; the kernel itself calls nobody at ${others.length} of them (${others.join(', ')})\n`,
  )
  canaries.touched = []
}

const settingsOf = (caFile: string, nameServer: string) => ({
  NODE_ENV: 'production',
  DELIVERY_CA_FILE: caFile,
  DELIVERY_DNS_SERVERS: nameServer,
  SMTP_URL: `smtp://${NOWHERE}`,
  SMS_GATEWAY_URL: `http://${NOWHERE}`,
  MESSAGE_GATEWAY_URL: `http://${NOWHERE}`,
  // No second attempts.
  RETRY_SCHEDULE: '86400',
})

async function attackWith(world: BenchWorld, canaries: Canaries, caFile: string, rounds: number): Promise<boolean> {
  await tryCanaries(canaries)
  const triedBefore = connectionsTried()
  const nameServer = await startNameServer(lyingAnswers())
  const daemon = await world.startDaemon(settingsOf(caFile, nameServer.address))
  const sent: Sent[] = []
  for (const attack of [PERMITTED, ...ATTACKS]) sent.push(await send(world, attack, 1))
  sent.push(await send(world, REBINDING, rounds))
  const copies = sent.reduce((sum, one) => sum + one.copies, 0)
  await untilFirstAttempts(world, copies, SLOWEST_MS + rounds * ROUND_MS)
  await world.stopDaemon(daemon)
  nameServer.close()
  const { faults, attempts } = await judge(world, sent)
  const followed = canaries.received.filter((path) => path === '/followed').length
  const elsewhere = connectionsTried() - triedBefore - canaries.permitted
  const names = registered()
  console.log(
    `\ncanaries=${REFUSED.length} touched=${canaries.touched.length} attempts=${attempts} connections=${canaries.permitted} elsewhere=${elsewhere} redirects followed=${followed} registered=${names.length}`,
  )
  if (canaries.touched.length > 0) faults.push(`touched: ${[...new Set(canaries.touched)].join(' ')}`)
  if (elsewhere !== 0) faults.push(`${elsewhere} connections were tried to none of ${PUBLIC.join(', ')}`)
  if (followed > 0) faults.push(`${followed} redirects were followed`)
  if (names.length > 0) faults.push(`can be registered: ${names.join(' ')}`)
  for (const fault of faults) console.log(`MISSED ${fault}`)
  return faults.length === 0
}

async function runInside(rounds: number): Promise<boolean> {
  // The settings of production: nothing is opened.
  delete process.env.DELIVERY_ALLOW_CIDRS
  const folder = mkdtempSync(join(tmpdir(), 'lis-ssrf-'))
  const world = await BenchWorld.open()
  try {
    const tls = await makeSureOfDevTls(folder, processClock.nowMs(), [
      ...PUBLIC.map((value) => ({ type: 'ip' as const, value })),
      ...PERMITTED_NAMES.map((value) => ({ type: 'dns' as const, value })),
    ])
    const canaries = await Canaries.listen(tls)
    const good = await attackWith(world, canaries, tls.caFile, rounds)
    canaries.close()
    return good
  } finally {
    await world.close()
    rmSync(folder, { recursive: true, force: true })
  }
}

async function main(): Promise<number> {
  const { values: options } = parseArgs({ options: { rounds: { type: 'string' }, inside: { type: 'boolean' } } })
  const rounds = Number(options.rounds ?? DEFAULT_ROUNDS)
  if (options.inside) return (await runInside(rounds)) ? 0 : 1
  const fault = namespaceFault()
  if (fault) throw new Error(`a network of its own is not to be had here: ${fault}`)
  return runInNamespace(import.meta.filename, ['--inside', '--rounds', String(rounds)])
}

main().then(
  (code) => process.exit(code),
  (error: Error) => {
    process.stderr.write(`bench-ssrf: ${error.message}\n`)
    process.exit(1)
  },
)
