/**
 * Random histories of the life cycle on the real modules and the database, against a model that was written from the
 * specification: after every command state, record, mails, copies and lists are those of the model, and the log of attempts
 * replays to the stored row. Commands that run at once must come out as one after the other, in some order.
 *
 * `make histories` has more of them. MODEL_RUNS=2000 runs that many, MODEL_COMMANDS=40 longer ones, MODEL_SEED=n repeats one, MODEL_SHRINK=0 shows the first failure as it is.
 */
import fc from 'fast-check'
import { isDeepStrictEqual } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startTestApp, type TestApp } from '../support/app.ts'
import { apply, countOnUrl, isSameFlight, newModel, SLOTS, visible, type Model, type Op, type Slot } from './life-cycle-model.ts' // prettier-ignore
import { LifeCycleSystem } from './life-cycle-system.ts'

const RUNS = Number(process.env.MODEL_RUNS ?? 30)
const COMMANDS = Number(process.env.MODEL_COMMANDS ?? 30)
const SEED = Number(process.env.MODEL_SEED ?? Math.floor(Math.random() * 2 ** 31))
/** Looking for a shorter history takes long. */
const SHRINKS = RUNS <= 100 && process.env.MODEL_SHRINK !== '0'
const HOUR_MS = 3_600_000
const YEARS_SECONDS = 10 * 365 * 86_400

let app: TestApp
beforeAll(async () => {
  // The clock is moved by days: the token must outlive them.
  app = await startTestApp({ accessTokenTtlSeconds: YEARS_SECONDS })
})
afterAll(() => app.close())

/** A wish, made before anybody knows what there is. It is bound to a webhook and an attempt when its turn comes. */
type Wish =
  | { kind: 'advance'; ms: number }
  | { kind: 'event'; slots: Slot[] }
  | { kind: 'subscribe'; slot: Slot }
  | { kind: 'start' | 'discard'; pick: number; daemon: 0 | 1 }
  | { kind: 'end'; pick: number; ok: boolean; error: string }
  | { kind: 'end_all'; daemon: 0 | 1; oks: boolean[] }
  | { kind: 'replace_daemon'; daemon: 0 | 1 }
  | { kind: 'delete' | 'reactivate'; pick: number }
  | { kind: 'check' | 'route' }

interface Real {
  system: LifeCycleSystem
}

/**
 * What can be the case, given all that was seen. Of an event and a deletion at once nobody can tell which was first, until the
 * fan-out shows it.
 */
interface Possible {
  models: Model[]
}

class LifeCycleCommand implements fc.AsyncCommand<Possible, Real> {
  /** One after the other; those of one step at once. */
  readonly steps: Wish[][]

  constructor(steps: Wish[][]) {
    this.steps = steps
  }

  check(): boolean {
    return true
  }

  async run(possible: Possible, { system }: Real): Promise<void> {
    for (const wishes of this.steps) await this.#step(wishes, possible, system)
  }

  async #step(wishes: Wish[], possible: Possible, system: LifeCycleSystem): Promise<void> {
    // They differ in nothing that a wish is bound to.
    const model = possible.models[0]!
    const ops: Op[] = []
    for (const wish of wishes) ops.push(...(await bind(wish, model, system, ops)))
    if (ops.length === 0) return
    const slots = model.webhooks.map(({ slot }) => slot)
    const answers = await Promise.all(ops.map((op) => system.perform(op, slots)))
    const { webhooks, onUrl } = await system.observe()
    const orders = ordersOf(ops.length)
    const outcomes = possible.models.flatMap((before) => orders.map((order) => inOrder(before, ops, order)))
    const fitting = outcomes.filter(
      (outcome) =>
        isDeepStrictEqual(outcome.answers, answers) &&
        isDeepStrictEqual(visible(outcome.model), webhooks) &&
        mailsFit(outcome.model, onUrl),
    )
    if (fitting.length === 0) {
      // Shows the difference from the order in which they were written.
      const first = outcomes[0]!
      expect({ answers, webhooks }).toEqual({ answers: first.answers, webhooks: visible(first.model) })
      throw new Error(`webhooks on the URL: ${JSON.stringify(onUrl)} in no order`)
    }
    possible.models = []
    for (const outcome of fitting) {
      if (!possible.models.some((other) => isDeepStrictEqual(other, outcome.model))) possible.models.push(outcome.model)
    }
  }

  toString(): string {
    return this.steps.map((wishes) => wishes.map((wish) => JSON.stringify(wish)).join(' at once with ')).join(', then ')
  }
}

function mailsFit(model: Model, onUrl: number[][]): boolean {
  return model.webhooks.every(({ mails }, n) => mails.every((mail, m) => mail.onUrl.includes(onUrl[n]![m]!)))
}

function inOrder(model: Model, ops: Op[], order: number[]): { model: Model; answers: string[] } {
  const copy = structuredClone(model)
  const before = countOnUrl(copy)
  const answers: string[] = []
  for (const n of order) answers[n] = apply(copy, ops[n]!, before)
  return { model: copy, answers }
}

function ordersOf(count: number): number[][] {
  if (count === 0) return [[]]
  return ordersOf(count - 1)
    .flatMap((order) =>
      Array.from({ length: count }, (_, at) => [...order.slice(0, at), count - 1, ...order.slice(at)]),
    )
    .sort((a, b) => (String(a) < String(b) ? -1 : 1))
}

/** @param others bound before, to be done at the same time @returns none where there is nothing that the wish could mean */
async function bind(wish: Wish, model: Model, system: LifeCycleSystem, others: Op[]): Promise<Op[]> {
  const { webhooks, flights } = model
  const isFree = (flight: Model['flights'][number]) =>
    !others.some((op) => op.kind === 'end' && op.results.some((result) => isSameFlight(result.flight, flight)))
  switch (wish.kind) {
    case 'subscribe':
      // Two new ones at once could not be told apart.
      return others.some(({ kind }) => kind === 'subscribe') ? [] : [wish]
    case 'start': {
      if (webhooks.length === 0) return []
      // The pick is taken among those that are to be sent, so that most wishes mean something.
      const waiting = webhooks.flatMap(({ copies }, webhook) =>
        [...copies].filter(([event, { status }]) => status === 'pending' && !flights.some((flight) => flight.webhook === webhook && flight.event === event)).map(([event]) => ({ webhook, event })),
      ) // prettier-ignore
      const chosen = waiting[wish.pick % (waiting.length || 1)]
      return chosen ? [{ kind: 'start', ...chosen, daemon: wish.daemon }] : []
    }
    case 'end': {
      const free = flights.filter(isFree)
      const flight = free[wish.pick % (free.length || 1)]
      return flight ? [{ kind: 'end', token: flight.token, results: [{ flight, ok: wish.ok, error: wish.error }] }] : []
    }
    case 'end_all': {
      const token = model.daemons[wish.daemon]
      const results = flights
        .filter((flight) => flight.token === token && isFree(flight))
        .map((flight, n) => ({ flight, ok: wish.oks[n % wish.oks.length]!, error: `HTTP status ${500 + n}` }))
      return results.length > 0 ? [{ kind: 'end', token, results }] : []
    }
    case 'replace_daemon':
      return [{ ...wish, token: await system.nextToken() }]
    case 'delete':
    case 'reactivate': {
      const some = webhooks.flatMap(({ state }, n) => (wish.kind === 'delete' || state !== 'active' ? [n] : []))
      return some.length > 0 ? [{ kind: wish.kind, webhook: some[wish.pick % some.length]! }] : []
    }
    case 'discard': {
      if (webhooks.length === 0) return []
      const webhook = wish.pick % webhooks.length
      const token = model.daemons[wish.daemon]
      const busy = flights.some((flight) => flight.webhook === webhook && flight.token === token)
      return busy ? [] : [{ kind: 'discard', webhook, daemon: wish.daemon }]
    }
    case 'event': {
      const before = others.filter(({ kind }) => kind === 'event').length
      return [{ ...wish, number: model.events.length + before }]
    }
    default:
      return [wish]
  }
}

const pick = fc.nat({ max: 11 })
const daemon = fc.constantFrom(0 as const, 1 as const)
const slot = fc.constantFrom(...SLOTS)
const error = fc.constantFrom('HTTP status 500', 'HTTP status 302', 'no answer within 10 s')
const minutes = [1, 5, 30, 120, 660, 719, 720, 721, 1379, 1380, 1381, 1439, 1440, 1441]
const advance = fc.record({
  kind: fc.constant('advance' as const),
  ms: fc.oneof(
    fc.constantFrom(...minutes.map((count) => count * 60_000)),
    fc.constantFrom(12 * HOUR_MS - 1, 12 * HOUR_MS, 23 * HOUR_MS - 1, 24 * HOUR_MS - 1, 1, 1000),
  ),
})
/** A record has one corporate and one doctor at most. */
const event = fc.record({
  kind: fc.constant('event' as const),
  slots: fc.constantFrom<Slot[]>([0], [1], [2], [0, 2], [1, 2], []),
})
const end = fc.record({ kind: fc.constant('end' as const), pick, ok: fc.nat(14).map((n) => n === 0), error })
const endAll = fc.record({
  kind: fc.constant('end_all' as const),
  daemon,
  oks: fc.array(
    fc.nat(9).map((n) => n === 0),
    { minLength: 1, maxLength: 4 },
  ),
})
const start = fc.record({ kind: fc.constant('start' as const), pick, daemon })
const ofWebhook = (kind: 'delete' | 'reactivate') => fc.record({ kind: fc.constant(kind), pick })
const check = fc.constant({ kind: 'check' as const })
const routing = fc.constant({ kind: 'route' as const })
const subscribe = fc.record({ kind: fc.constant('subscribe' as const), slot })
const atOnce: fc.Arbitrary<Wish> = fc.oneof(
  { weight: 6, arbitrary: end },
  { weight: 3, arbitrary: endAll },
  { weight: 2, arbitrary: check },
  { weight: 2, arbitrary: ofWebhook('reactivate') },
  { weight: 1, arbitrary: ofWebhook('delete') },
  { weight: 1, arbitrary: event },
  { weight: 1, arbitrary: routing },
  { weight: 1, arbitrary: subscribe },
)
const alone: fc.Arbitrary<Wish> = fc.oneof(
  { weight: 5, arbitrary: advance },
  { weight: 3, arbitrary: event },
  { weight: 5, arbitrary: start },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('discard' as const), pick, daemon }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('replace_daemon' as const), daemon }) },
  { weight: 3, arbitrary: subscribe },
  { weight: 6, arbitrary: atOnce },
  { weight: 3, arbitrary: routing },
)
const command = fc
  .oneof(
    { weight: 8, arbitrary: alone.map((wish) => [[wish]]) },
    { weight: 2, arbitrary: fc.array(atOnce, { minLength: 2, maxLength: 3 }).map((wishes) => [wishes]) },
    // What happens most: time goes by, and an attempt is made.
    { weight: 12, arbitrary: fc.tuple(advance, start, end).map((wishes) => wishes.map((wish) => [wish])) },
  )
  .map((steps: Wish[][]) => new LifeCycleCommand(steps))

/** So that every run has something to go on from. */
const opening: Wish[] = [
  { kind: 'subscribe', slot: 0 },
  { kind: 'subscribe', slot: 1 },
  { kind: 'event', slots: [0] },
  { kind: 'event', slots: [1, 2] },
  { kind: 'route' },
]

test(
  `${RUNS} random histories of up to ${COMMANDS} commands go as the specification says`,
  { timeout: 60_000 + RUNS * 20_000 },
  async () => {
    console.log(`MODEL_SEED=${SEED}`)
    let done = 0
    const seen = { warnings: 0, deletions: 0, recoveries: 0 }
    await fc.assert(
      fc.asyncProperty(fc.commands([command], { maxCommands: COMMANDS, size: 'max' }), async (commands) => {
        const system = await new LifeCycleSystem(app).open()
        const possible: Possible = { models: [newModel(app.clock.nowMs(), system.daemons)] }
        await new LifeCycleCommand(opening.map((wish) => [wish])).run(possible, { system })
        await fc.asyncModelRun(() => ({ model: possible, real: { system } }), commands)
        const model = possible.models[0]!
        if (++done % 100 === 0) console.log(`${done} of ${RUNS} histories`)
        const mails = model.webhooks.flatMap((webhook) => webhook.mails)
        seen.warnings += mails.filter(({ kind }) => kind === 'warning').length
        seen.deletions += mails.filter(({ kind }) => kind === 'deletion').length
        seen.recoveries += model.webhooks.filter((webhook) => webhook.generation > 1).length
      }),
      { numRuns: RUNS, seed: SEED, endOnFailure: !SHRINKS },
    )
    console.log(`histories=${RUNS} MODEL_SEED=${SEED} ${JSON.stringify(seen)} counterexamples=0`)
    // A test that never gets as far as both mails shows nothing.
    expect(Math.min(seen.warnings, seen.deletions)).toBeGreaterThan(0)
  },
)
