/**
 * Commits in doubt: the connection is cut when COMMIT was sent, done, and its answer is on the way. The API must say that it
 * does not know, and keep what it did; the daemon must not do it again.
 */
import { isWebhookDry, until, type CrashArena, type CrashProcess } from './crash-arena.ts'
import type { HookedReceiver } from './hooked-receiver.ts'
import { call, leadBody } from './lead-client.ts'

export interface CutResult {
  calls: number
  /** Answered 5xx. */
  refused: number
  /** Of these, committed all the same. */
  stored: number
  /** Repeats with the same Idempotency-Key that got the result of what is stored, and stored nothing more. */
  repeated: number
  /** Whose one event came once. */
  delivered: number
  /** Records of attempts whose commit was cut. */
  records: number
  recordsTwice: number
}

interface CutStage {
  arena: CrashArena
  receiver: HookedReceiver
  api: CrashProcess
  daemon: CrashProcess
}

export async function cutCommits(stage: CutStage, cuts: number): Promise<CutResult> {
  const result = { calls: cuts, refused: 0, stored: 0, repeated: 0, delivered: 0, records: 0, recordsTwice: 0 }
  for (let n = 0; n < cuts; n++) await cutLead(stage, result)
  for (let n = 0; n < cuts; n++) await cutRecord(stage, result)
  return result
}

async function cutLead({ arena, receiver, api }: CutStage, result: CutResult): Promise<void> {
  const tenant = await arena.addTenant()
  const webhook = await arena.addWebhook(tenant, receiver.urlOf)
  const lead = leadBody(tenant, `cut-${webhook}`)
  const headers = { 'idempotency-key': `cut-${webhook}` }
  const create = () => call(undefined, 'POST', `${api.url}/client/crm/lead/create`, tenant, lead, headers)
  api.proxy.arm({ statement: /INSERT INTO entries /, when: 'after' }, (cut) => cut())
  const { status } = await create()
  if (status !== null && status >= 500) result.refused++
  const rows = () => arena.database.knex('entries').where({ account_id: tenant.account }).pluck('id')
  const stored = await rows()
  result.stored += stored.length
  const again = await create()
  const after = await rows()
  if (again.status === 200 && after.length === 1 && after[0] === again.body.leadId) result.repeated++
  const seen = () => receiver.receipts.filter((one) => one.webhook === webhook)
  await until('the delivery', () => seen().length > 0)
  await until('the end of the delivery', () => isWebhookDry(arena.database, webhook))
  if (seen().length === 1) result.delivered++
}

async function cutRecord({ arena, receiver, daemon }: CutStage, result: CutResult): Promise<void> {
  const tenant = await arena.addTenant()
  const webhook = await arena.addWebhook(tenant, receiver.urlOf)
  let reached = false
  daemon.proxy.arm(
    { statement: new RegExp(`INSERT INTO (deliveries|earlier_attempts)[^]*'${webhook}'`), when: 'after' },
    (cut) => {
      reached = true
      cut()
    },
  )
  await arena.addEvent(tenant)
  await until('the record', () => reached)
  await until('the end of the delivery', () => isWebhookDry(arena.database, webhook))
  // A second event tells that the lane goes on, and comes after whatever would be sent twice.
  await arena.addEvent(tenant)
  const seen = () => receiver.receipts.filter((one) => one.webhook === webhook)
  await until('the next delivery', () => new Set(seen().map(({ event }) => event)).size === 2)
  result.records++
  if (seen().length !== 2) result.recordsTwice++
}
