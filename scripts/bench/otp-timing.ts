/**
 * `make bench-otp`: can anybody tell by the time of the answer whether a number is a patient's? Asks a real API for one-time
 * passwords of numbers that are and numbers that are not, in no order, and compares the two by Welch's t. Exit 1
 * when |t| is 4.5 or more, or when the answers differ in anything but their tokens.
 *
 * `--n count`: of each kind, 2,000 by default. `--in-turns`: one kind after the other, and no pause, so that what is done behind an
 * answer would fall on the other kind's next. `--control ms`: the answers to patients are held up for so long, and t must tell.
 */
import { randomInt } from 'node:crypto'
import { cpus } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { monotonicMs } from '../../src/clock.ts'
import { newId } from '../../src/ids.ts'
import { insertPatient } from '../../src/patients/patients-repository.ts'
import { CrashArena, type Tenant } from '../crash/crash-arena.ts'
import { CrashServer } from '../crash/crash-server.ts'
import { call, newAgent } from '../crash/lead-client.ts'

/** The level at which a leak of timing is taken for shown (Goodwill and others, 2011). */
const LIMIT = 4.5
const WARM_UP = 100

interface Course {
  count: number
  inTurns: boolean
  controlMs: number
}

interface Sample {
  isPatient: boolean
  ms: number
  shape: string
}

function contactOf(n: number, isPatient: boolean): string {
  return String((isPatient ? 9_000_000_000 : 8_000_000_000) + n)
}

function asksOf(count: number, inTurns: boolean): { n: number; isPatient: boolean }[] {
  const asks = Array.from({ length: 2 * count }, (_, index) => ({ n: index >> 1, isPatient: index % 2 === 0 }))
  if (inTurns) return asks
  for (let last = asks.length - 1; last > 0; last--) {
    const other = randomInt(last + 1)
    const ask = asks[last]!
    asks[last] = asks[other]!
    asks[other] = ask
  }
  return asks
}

/** Each number once: what has been asked for before is another case. */
async function measure(arena: CrashArena, tenant: Tenant, { count, inTurns, controlMs }: Course): Promise<Sample[]> {
  const { knex } = arena.database
  const createdAt = arena.clock.now()
  for (let n = 0; n < count; n++) {
    const id = newId(createdAt.getTime())
    await insertPatient(knex, { id, accountId: tenant.account, contact: contactOf(n, true), name: 'Asha', createdAt })
  }
  const { url } = await arena.startApi()
  const agent = newAgent()
  const samples: Sample[] = []
  for (const [index, { n, isPatient }] of asksOf(count, inTurns).entries()) {
    const startedAtMs = monotonicMs()
    const contact = contactOf(n, isPatient)
    const { status, body } = await call(agent, 'POST', `${url}/client/patient/getLoginOTP`, tenant, { contact })
    if (isPatient && controlMs > 0) await sleep(controlMs)
    const shape = `${status} ${Object.keys(body)} ${String(body.otpToken).length}`
    if (index >= WARM_UP) samples.push({ isPatient, ms: monotonicMs() - startedAtMs, shape })
    // Most of what is done behind an answer is over by then, if it is done at once.
    if (!inTurns) await sleep(2)
  }
  agent.destroy()
  return samples
}

function meanAndVariance(values: number[]): { mean: number; variance: number; count: number } {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length
  const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - 1)
  return { mean, variance, count: values.length }
}

function welch(a: number[], b: number[]): number {
  const [left, right] = [meanAndVariance(a), meanAndVariance(b)]
  return (left.mean - right.mean) / Math.sqrt(left.variance / left.count + right.variance / right.count)
}

/** Without the slowest twentieth: a stall of the machine falls on either kind, and hides what is to be seen. */
function trimmed(values: number[]): number[] {
  return values.toSorted((a, b) => a - b).slice(0, Math.ceil(values.length * 0.95))
}

function report(samples: Sample[]): boolean {
  const of = (isPatient: boolean) => samples.filter((sample) => sample.isPatient === isPatient).map(({ ms }) => ms)
  const [patients, others] = [of(true), of(false)]
  const t = { all: welch(patients, others), trimmed: welch(trimmed(patients), trimmed(others)) }
  const shapes = [...new Set(samples.map(({ shape }) => shape))]
  const row = (name: string, values: number[]) => {
    const { mean, variance } = meanAndVariance(values)
    console.log(`| ${name} | ${values.length} | ${mean.toFixed(3)} | ${Math.sqrt(variance).toFixed(3)} |`)
  }
  console.log('| number | answers | mean ms | deviation ms |\n|---|---|---|---|')
  row('of a patient', patients)
  row('of nobody', others)
  console.log(`\nWelch t=${t.all.toFixed(2)}, without the slowest 5 % t=${t.trimmed.toFixed(2)} (limit ${LIMIT})`)
  console.log(`answers: ${shapes.join(' | ')}`)
  return Math.abs(t.all) < LIMIT && Math.abs(t.trimmed) < LIMIT && shapes.length === 1
}

async function main(): Promise<boolean> {
  const { values } = parseArgs({
    options: { n: { type: 'string' }, 'in-turns': { type: 'boolean' }, control: { type: 'string' } },
  })
  console.log(`${cpus().length} x ${cpus()[0]?.model}, Node ${process.version}\n`)
  const server = await CrashServer.start()
  try {
    const arena = await CrashArena.open(await server.newDatabase(), server.folder, server.tls)
    try {
      const count = Number(values.n ?? 2000) + WARM_UP / 2
      const course = { count, inTurns: values['in-turns'] ?? false, controlMs: Number(values.control ?? 0) }
      return report(await measure(arena, await arena.addTenant(), course))
    } finally {
      await arena.close()
    }
  } finally {
    await server.close()
  }
}

main().then(
  (good) => process.exit(good ? 0 : 1),
  (error: Error) => {
    process.stderr.write(`bench: ${error.stack}\n`)
    process.exit(1)
  },
)
