/**
 * Generated requests for every operation of both contracts. In the suite a small number; `node scripts/fuzz.ts` takes more.
 * Every answer is held to the contract on its way; see operation-runs.ts for what counts as a failure.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { client, operator, startTestApp, type TestApp } from '../support/app.ts'
import { FuzzWorld } from './fuzz-world.ts'
import { OperationRunner, type Outcome } from './operation-runs.ts'

/** Of each kind, for each operation. The operator's has four times as many operations, which the lab alone calls. */
const RUNS_OF = { client: Number(process.env.FUZZ_RUNS ?? 30), operator: Number(process.env.FUZZ_RUNS ?? 8) }
const SEED = Number(process.env.FUZZ_SEED ?? Math.floor(Math.random() * 1e9))
const TIMEOUT_MS = 60_000 + RUNS_OF.client * 1000
const MAX_SHOWN = 12

let app: TestApp
let world: FuzzWorld
const outcomes: (Outcome & { kind: string })[] = []

beforeAll(async () => {
  app = await startTestApp()
  world = await FuzzWorld.create(app)
})
afterAll(async () => {
  const sum = (kind: string) => outcomes.filter((one) => one.kind === kind).reduce((n, { sent }) => n + sent, 0)
  console.log(`fuzz: ${sum('valid')} valid and ${sum('faulty')} faulty requests, seed ${SEED} (FUZZ_SEED, FUZZ_RUNS)`)
  await app.close()
})

function report(kind: string, outcome: Outcome): string[] {
  outcomes.push({ kind, ...outcome })
  return outcome.failures.slice(0, MAX_SHOWN).map((failure) => failure.slice(0, 1000))
}

describe.each([
  ['client', client],
  ['operator', operator],
] as const)('of the %s contract', (name, contract) => {
  const runs = RUNS_OF[name]
  let runner: OperationRunner
  beforeAll(() => {
    runner = new OperationRunner(world, contract)
  })

  const operations = contract.operations.map((operation) => ({ ...operation, name: operation.operationId }))

  test.each(operations)(
    '$name takes every valid request',
    async (operation) => {
      const outcome = await runner.runValid(operation, runs, SEED)
      expect(report('valid', outcome)).toEqual([])
      expect(outcome.sent).toBe(runs)
    },
    TIMEOUT_MS,
  )

  test.each(operations)(
    '$name refuses every request with a fault, and stores nothing of it',
    async (operation) => {
      const outcome = await runner.runFaulty(operation, runs, SEED)
      expect(report('faulty', outcome)).toEqual([])
      expect(outcome.sent).toBeGreaterThan(0)
    },
    TIMEOUT_MS,
  )
})
