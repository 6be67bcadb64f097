/**
 * Webhooks that are deleted while messages wait for them, in each way there is. What each message came to is judged by what its
 * endpoint and the gateway have seen.
 */
import { insertOperatorKey } from '../../src/auth/operator-keys-repository.ts'
import { monotonicMs } from '../../src/clock.ts'
import { hashSecret, newSecret } from '../../src/crypto.ts'
import { newId, publicEventId } from '../../src/ids.ts'
import { recordMessage } from '../../src/messages/message-recording.ts'
import { until, type CrashArena, type CrashProcess, type Tenant } from './crash-arena.ts'
import { pause } from './crash-stage.ts'
import type { HookedReceiver } from './hooked-receiver.ts'
import { isSuccess, type Receipt } from './ledger-check.ts'
import { call } from './lead-client.ts'
import type { CountingGateway } from './message-gateway.ts'

const WAYS = ['integrator', 'operator', 'itself'] as const
/** Who deletes the webhook; `itself`: its endpoint has failed for a day. */
export type DeletionWay = (typeof WAYS)[number]

/** From the answer on. */
const NO_START_AFTER_MS = 1000
const NEW_MESSAGES = 5
/** Answered before it is deleted, so that its daemon is at work. */
const ANSWERED_BEFORE = 20
/** Long enough that some are under way when what waits is discarded. */
const ANSWER_MS = 100
const FAILING_FOR_MS = 25 * 3_600_000
const MESSAGES_A_TRANSACTION = 50
const DONE_WITHIN_MS = 120_000

export interface DeletionStage {
  arena: CrashArena
  receiver: HookedReceiver
  gateway: CountingGateway
  api: CrashProcess
  operatorKey: string
}

export interface DeletionTally {
  deletions: number
  /** Messages that waited. */
  queued: number
  /** Of all messages: the endpoint has answered 2xx. */
  taken: number
  /** The gateway has them, once. */
  normal: number
  /** Requests to the endpoint later than a second after the answer. */
  late: number
  /** The last request to it, after the answer. */
  lastMs: number
  /** Messages from after the answer that the endpoint got. */
  astray: number
  /** Sent by the endpoint's owner and by the gateway. */
  both: number
  /** Sent by nobody. */
  neither: number
  /** The gateway was asked more than once. */
  twice: number
}

export const NO_DELETIONS: DeletionTally = {
  deletions: 0,
  queued: 0,
  taken: 0,
  normal: 0,
  late: 0,
  lastMs: 0,
  astray: 0,
  both: 0,
  neither: 0,
  twice: 0,
}

export function addTallies(a: DeletionTally, b: DeletionTally): DeletionTally {
  const sum = (name: keyof DeletionTally) => a[name] + b[name]
  const names = Object.keys(a) as (keyof DeletionTally)[]
  return { ...(Object.fromEntries(names.map((name) => [name, sum(name)])) as unknown as DeletionTally), lastMs: Math.max(a.lastMs, b.lastMs) } // prettier-ignore
}

export function isTallyRight({ late, astray, both, neither, twice }: DeletionTally): boolean {
  return late + astray + both + neither + twice === 0
}

/** Of the operator that deletes. */
export async function newOperatorKey({ database, clock }: CrashArena): Promise<string> {
  const key = newSecret()
  const record = { id: newId(clock.nowMs()), name: 'deletions', role: 'admin' as const, accountId: null }
  await database.transaction((trx) =>
    insertOperatorKey(trx, { ...record, keyHash: hashSecret(key), createdAt: clock.now() }),
  )
  return key
}

/** @param n of the round: the ways take turns, and of the endpoints every other one fails */
export async function deleteWhileQueued(stage: DeletionStage, n: number, copies: number): Promise<DeletionTally> {
  const { arena, receiver } = stage
  const way = WAYS[n % WAYS.length]!
  const status = way === 'itself' || n % 2 === 1 ? 500 : 204
  const tenant = await arena.addTenant()
  const webhook = await arena.addWebhook(tenant, receiver.urlOf, ['booking.send'])
  if (way === 'itself') await failForADay(arena, webhook)
  const receipts: Receipt[] = []
  const queued = Promise.withResolvers<void>()
  receiver.behaviours.set(webhook, async (receipt) => {
    receipts.push(receipt)
    await Promise.all([queued.promise, pause(ANSWER_MS)])
    return status
  })
  const before = await addMessages(arena, tenant, copies)
  await until('all of them wait', async () => (await copiesOf(arena, webhook)) === copies, DONE_WITHIN_MS)
  queued.resolve()
  const deletedAtMs = await deleteWebhook(stage, tenant, webhook, way, receipts)
  const after = await addMessages(arena, tenant, NEW_MESSAGES)
  await until('every message is sent', () => isDecided(arena, tenant), DONE_WITHIN_MS)
  // Whatever would still start against the rule has begun by then.
  await pause(Math.max(0, deletedAtMs + 2 * NO_START_AFTER_MS - monotonicMs()))
  receiver.behaviours.delete(webhook)
  return judge(stage, { before, after, receipts, deletedAtMs })
}

/** @returns when it was answered */
async function deleteWebhook(
  { arena, api, operatorKey }: DeletionStage,
  tenant: Tenant,
  webhook: string,
  way: DeletionWay,
  receipts: Receipt[],
): Promise<number> {
  if (way === 'itself') {
    const isActive = () => arena.database.knex('webhooks').where({ id: webhook, state: 'active' }).first('id')
    await until('it is deleted', async () => !(await isActive()), DONE_WITHIN_MS)
    return monotonicMs()
  }
  await until('it is at work', () => receipts.length > ANSWERED_BEFORE, DONE_WITHIN_MS)
  const { status } =
    way === 'operator'
      ? await call(undefined, 'DELETE', `${api.url}/operator/accounts/${tenant.account}/webhooks/${webhook}`, { ...tenant, token: operatorKey }) // prettier-ignore
      : await call(undefined, 'DELETE', `${api.url}/client/events/deleteEvent/${webhook}?labID=${tenant.lab}`, tenant)
  if (status !== 200) throw new Error(`a deletion was answered ${status ?? 'with nothing'}`)
  return monotonicMs()
}

function judge(
  { gateway }: DeletionStage,
  { before, after, receipts, deletedAtMs }: { before: string[]; after: string[]; receipts: Receipt[]; deletedAtMs: number }, // prettier-ignore
): DeletionTally {
  const taken = new Set(receipts.filter(isSuccess).map(({ event }) => event))
  const fresh = new Set(after)
  const tally = { ...NO_DELETIONS, deletions: 1, queued: before.length, taken: taken.size }
  tally.late = receipts.filter(({ atMs }) => atMs > deletedAtMs + NO_START_AFTER_MS).length
  tally.lastMs = Math.max(0, ...receipts.map(({ atMs }) => atMs - deletedAtMs))
  tally.astray = receipts.filter(({ event }) => fresh.has(event)).length
  for (const event of [...before, ...after]) {
    const asked = gateway.asked.get(publicEventId(event)) ?? 0
    if (asked > 1) tally.twice++
    if (taken.has(event)) tally.both += Math.min(asked, 1)
    else if (asked === 0) tally.neither++
    else tally.normal++
  }
  return tally
}

/** As a webhook is whose endpoint has answered no 2xx for longer than a day: its next failed attempt deletes it. */
async function failForADay({ database, clock }: CrashArena, webhook: string): Promise<void> {
  const first_failure_at = new Date(clock.nowMs() - FAILING_FOR_MS)
  await database.knex('webhooks').where({ id: webhook }).update({ first_failure_at, failed_attempts: 8, last_error: 'HTTP status 500' }) // prettier-ignore
}

/** @returns their events */
async function addMessages({ database, clock }: CrashArena, tenant: Tenant, count: number): Promise<string[]> {
  const events = Array.from({ length: count }, () => newId(clock.nowMs()))
  for (let from = 0; from < count; from += MESSAGES_A_TRANSACTION) {
    await database.transaction(async (trx) => {
      for (const event of events.slice(from, from + MESSAGES_A_TRANSACTION)) {
        await recordMessage(trx, event, messageOf(tenant, event), clock.now())
      }
    })
  }
  return events
}

function messageOf({ account: accountId, lab: labId }: Tenant, id: string) {
  const record = { id, version: 1, accountId, labId, integratorId: null, corporateId: null, doctorId: null, hospitalId: null } // prettier-ignore
  return {
    type: 'booking.send' as const,
    subject: { kind: 'entry' as const, ...record },
    recipient: { contact: '9876543210', name: 'Asha' },
    template: 'visit_reminder',
    text: 'Your visit is on Monday.',
    variables: { day: 'Monday' },
    attachmentUrl: null,
  }
}

async function copiesOf({ database }: CrashArena, webhook: string): Promise<number> {
  const [row] = await database.knex('delivery_queue').where({ webhook_id: webhook }).count({ n: '*' })
  return Number(row!.n)
}

async function isDecided({ database }: CrashArena, { account }: Tenant): Promise<boolean> {
  const open = await database
    .knex('messages')
    .where({ account_id: account })
    .andWhere((either) => either.where({ state: 'offered' }).orWhere({ state: 'normal', sent_at: null }))
    .first('event_id')
  return open === undefined
}
