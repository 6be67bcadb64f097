/**
 * Every point at which a process may be killed, with exactly what is allowed to be seen afterwards. A count outside of that
 * is a fault: "at least once" is no excuse for twice.
 */
import { createSocket } from 'node:dgram'
import { monotonicMs } from '../../src/clock.ts'
import { hintDatagram } from '../../src/events/daemon-hints.ts'
import { isWebhookDry, until, type CrashArena, type CrashProcess, type Tenant } from './crash-arena.ts'
import type { QueryPoint, When } from './database-proxy.ts'
import type { HookedReceiver } from './hooked-receiver.ts'
import { call, leadBody } from './lead-client.ts'
import type { MailSink } from './mail-sink.ts'

/** What was in flight at a kill is tried again within this time. */
const RETRIED_WITHIN_MS = 15_000

export interface Stage {
  arena: CrashArena
  receiver: HookedReceiver
  mails: MailSink
  /** The process that the last point left running. */
  api?: CrashProcess
  daemon?: CrashProcess
}

export interface CrashPoint {
  name: string
  process: 'api' | 'daemon' | 'mail'
  /** @throws when what is seen afterwards is not what is allowed */
  run(stage: Stage): Promise<void>
}

/** As a round trip of its own. */
const ALONE = /^COMMIT;?$/

function must(condition: unknown, fault: string): asserts condition {
  if (!condition) throw new Error(fault)
}

async function count(arena: CrashArena, table: string, where: Record<string, unknown>): Promise<number> {
  const [row] = await arena.database.knex(table).where(where).count({ n: '*' })
  return Number(row!.n)
}

const receiptsOf = ({ receiver }: Stage, webhook: string) => receiver.receipts.filter((one) => one.webhook === webhook)

/** Kills the process at the point; resolves when it is dead. */
async function killAt(process: CrashProcess, point: QueryPoint, cause: () => unknown): Promise<void> {
  process.proxy.arm(point, () => process.kill())
  cause()
  await Promise.race([process.service.ended, deadline(`the point ${point.statement} was not reached`)])
}

function deadline(fault: string): Promise<never> {
  return new Promise((_, reject) => setTimeout(() => reject(new Error(fault)), 20_000).unref())
}

/** Leads of an account without a key after which the next one is foreseen. */
const PRACTICE = 3

/**
 * Killed while it creates a lead: either nothing of it is there, or everything, and then it is delivered exactly once.
 * @param practice leads before it
 */
function leadPoint(name: string, statement: RegExp, when: When, isCommitted: boolean, practice = 0): CrashPoint {
  return {
    name,
    process: 'api',
    async run(stage) {
      const { arena } = stage
      const { api, tenant, webhook } = await prepareApi(stage)
      const headers: Record<string, string> = practice > 0 ? {} : { 'idempotency-key': `key-${webhook}` }
      const lead = leadBody(tenant, name)
      const create = (url: string, body = lead) =>
        call(undefined, 'POST', `${url}/client/crm/lead/create`, tenant, body, headers)
      for (let n = 0; n < practice; n++)
        must((await create(api.url, leadBody(tenant, `${name}-${n}`))).status === 200, 'no lead before it')
      let answer: Awaited<ReturnType<typeof create>> | undefined
      await killAt(api, { statement, when }, async () => (answer = await create(api.url)))
      await until('the client sees the end', () => answer !== undefined)
      must(answer!.status === null, `the client got ${answer!.status}`)
      stage.api = await arena.startApi()
      const rows = await count(arena, 'entries', { account_id: tenant.account })
      must(rows - practice === (isCommitted ? 1 : 0), `${rows - practice} rows of the lead`)
      must((await count(arena, 'events', { account_id: tenant.account })) === rows, 'the event is not with its lead')
      // In doubt, the client asks again: with its key it gets the first result, or the only one; without, that there is one.
      const again = await create(stage.api.url)
      must(again.status === (practice > 0 && isCommitted ? 409 : 200), `the repeat got ${again.status}`)
      must(
        (await count(arena, 'entries', { account_id: tenant.account })) === practice + 1,
        'the repeat made a second lead',
      )
      await deliveredOnce(stage, webhook, practice + 1)
    },
  }
}

async function prepareApi(stage: Stage) {
  stage.daemon ??= await stage.arena.startDaemon()
  const api = (stage.api ??= await stage.arena.startApi())
  const tenant = await stage.arena.addTenant()
  const webhook = await stage.arena.addWebhook(tenant, stage.receiver.urlOf)
  return { api, tenant, webhook }
}

async function deliveredOnce(stage: Stage, webhook: string, events = 1): Promise<void> {
  await until('the delivery', () => receiptsOf(stage, webhook).length >= events)
  await until('the end of the delivery', () => isWebhookDry(stage.arena.database, webhook))
  const { length } = receiptsOf(stage, webhook)
  must(length === events, `${events} received ${length} times`)
}

const afterReply: CrashPoint = {
  name: 'api.after_reply',
  process: 'api',
  async run(stage) {
    const { api, tenant, webhook } = await prepareApi(stage)
    const lead = leadBody(tenant, 'after_reply')
    const { status } = await call(undefined, 'POST', `${api.url}/client/crm/lead/create`, tenant, lead)
    api.kill()
    must(status === 200, `the client got ${status}`)
    await api.service.ended
    await deliveredOnce(stage, webhook)
    delete stage.api
  },
}

const afterDelete: CrashPoint = {
  name: 'delete.after_commit',
  process: 'api',
  async run(stage) {
    const { api, tenant, webhook } = await prepareApi(stage)
    const url = `${api.url}/client/events/deleteEvent/${webhook}?labID=${tenant.lab}`
    await killAt(api, { statement: ALONE, when: 'after' }, () => call(undefined, 'DELETE', url, tenant))
    delete stage.api
    must((await count(stage.arena, 'webhooks', { id: webhook, state: 'deleted' })) === 1, 'the webhook is not deleted')
    await stage.arena.addEvent(tenant)
    await until('the routing', async () => (await count(stage.arena, 'unrouted_events', {})) === 0)
    await until('nothing waits', () => isWebhookDry(stage.arena.database, webhook))
    must(receiptsOf(stage, webhook).length === 0, 'a deleted webhook got a request')
  },
}

const afterReactivate: CrashPoint = {
  name: 'reactivate.after_commit',
  process: 'api',
  async run(stage) {
    const { api, tenant, webhook } = await prepareApi(stage)
    const { knex } = stage.arena.database
    const gone = { state: 'auto_deleted', epoch: 2, inactive_from: knex.raw('UTC_TIMESTAMP(6)'), deactivated_at: new Date(stage.arena.clock.nowMs()) } // prettier-ignore
    await knex('webhooks').where({ id: webhook }).update(gone)
    await stage.arena.addEvent(tenant)
    await until('the routing', async () => (await count(stage.arena, 'unrouted_events', {})) === 0)
    const url = `${api.url}/client/events/reactivateEvent/${webhook}?labID=${tenant.lab}`
    await killAt(api, { statement: ALONE, when: 'after' }, () => call(undefined, 'PATCH', url, tenant))
    delete stage.api
    const event = await stage.arena.addEvent(tenant)
    await deliveredOnce(stage, webhook)
    must(receiptsOf(stage, webhook)[0]!.event === event, 'an event from before was sent')
  },
}

interface DeliveryPoint {
  name: string
  /** How often the receiver may get the whole request. */
  received: number[]
  /** The event comes with its copy, so that the daemon takes the lane by itself and not with the fan-out. */
  isRouted?: boolean
  /** The daemon is told which event it is. It may look by itself a moment before. */
  isHinted?: boolean
  /** Where the daemon dies, and what brings it there. */
  kill(stage: Stage, daemon: CrashProcess, webhook: string, cause: () => unknown): Promise<void>
}

/** Killed while it delivers one event to one webhook; the next daemon makes up for it. */
function deliveryPoint({ name, received, isRouted, isHinted, kill }: DeliveryPoint): CrashPoint {
  return {
    name,
    process: 'daemon',
    async run(stage) {
      const { arena, receiver } = stage
      const daemon = (stage.daemon ??= await arena.startDaemon())
      const tenant = await arena.addTenant()
      const webhook = await arena.addWebhook(tenant, receiver.relayedUrlOf)
      await warmUp(stage, tenant, webhook)
      let event = ''
      await kill(stage, daemon, webhook, async () => {
        event = await arena.addEvent(tenant, isRouted ? webhook : undefined)
        if (isHinted) hintOf(event, daemon)
      })
      const killedAtMs = monotonicMs()
      stage.daemon = await arena.startDaemon()
      const seen = () => receiver.receipts.filter((one) => one.webhook === webhook && one.event === event)
      await until('the delivery', () => seen().some(({ answered }) => answered !== undefined))
      await until('the end of the delivery', () => isWebhookDry(arena.database, webhook))
      const { length } = seen()
      must(received.includes(length), `received ${length} times instead of ${received.join(' or ')}`)
      const waitedMs = seen().at(-1)!.atMs - killedAtMs
      must(waitedMs < RETRIED_WITHIN_MS, `tried again after ${Math.round(waitedMs)} ms`)
      await isWrittenDown(arena, webhook, event)
    },
  }
}

function hintOf(eventId: string, daemon: CrashProcess): void {
  const { hostname, port } = new URL(daemon.url)
  const socket = createSocket('udp4')
  socket.send(hintDatagram({ kind: 'events', eventId }), Number(port), hostname, () => socket.close())
}

/** Opens the connection, and waits until the lane has been given back. */
async function warmUp(stage: Stage, tenant: Tenant, webhook: string): Promise<void> {
  const { arena } = stage
  await arena.addEvent(tenant)
  await until('the first delivery', () => receiptsOf(stage, webhook).length > 0)
  await until('the lane rests', async () => (await count(arena, 'lanes', { webhook_id: webhook, owner: null })) === 1)
}

/** Never an attempt without its consequence, nor the other way round. */
async function isWrittenDown(arena: CrashArena, webhook: string, event: string): Promise<void> {
  const copy = { webhook_id: webhook, event_id: event }
  const delivery = await arena.database.knex('deliveries').where(copy).first('status', 'attempts')
  const attempts = await arena.database.knex('attempts').where(copy).orderBy('n').pluck('n')
  must(delivery?.status === 'delivered', `the delivery is ${delivery?.status ?? 'not written down'}`)
  must(attempts.length === 1 && delivery.attempts === 1, `${attempts.length} attempts of ${delivery.attempts}`)
}

function atQuery(statement: (webhook: string) => RegExp, when: When): DeliveryPoint['kill'] {
  return (_, daemon, webhook, cause) => killAt(daemon, { statement: statement(webhook), when }, cause)
}

const halfSent: DeliveryPoint['kill'] = async ({ receiver }, daemon, _, cause) => {
  receiver.armHalf(() => daemon.kill())
  cause()
  await Promise.race([daemon.service.ended, deadline('no request was half sent')])
}

const sent: DeliveryPoint['kill'] = async ({ receiver }, daemon, webhook, cause) => {
  receiver.behaviours.set(webhook, () => {
    daemon.kill()
    receiver.behaviours.delete(webhook)
    return 'never'
  })
  cause()
  await Promise.race([daemon.service.ended, deadline('no request came')])
}

/** While it stops, before it gives back what it owns; the event comes afterwards. */
const draining: DeliveryPoint['kill'] = async (_stage, daemon, _webhook, cause) => {
  await killAt(daemon, { statement: /^delete from `daemons`/i, when: 'before' }, () => void daemon.stop())
  await cause()
}

const READ = (webhook: string) =>
  new RegExp(`FROM delivery_queue q FORCE INDEX \\(\\w+\\) STRAIGHT_JOIN event_bodies[^]*'${webhook}'`)
/** The first statement of recording: of a webhook that is known as healthy, its lane's. */
const JUDGE = (webhook: string) =>
  new RegExp(
    `FROM webhooks\\s+WHERE id IN[^]*'${webhook}'[^]*FOR UPDATE|INSERT INTO lanes \\(webhook_id, last_seq[^]*'${webhook}'`,
  )
/** Its id may stand in the middle of a text. */
const RECORD = (webhook: string) => new RegExp(`INSERT INTO (deliveries|earlier_attempts)[^]*${webhook}`)

/** The last statement of a fan-out. It takes the lane along, unless the daemon is still giving it back at this moment. */
const ROUTED = /UPDATE (lanes FORCE INDEX \(PRIMARY\)|delivery_queue q) [^]*due_at = LEAST/

/** The last round trip of a hinted fan-out, while which the event is sent. */
const HINTED_END = /^DELETE FROM unrouted_events WHERE event_id = @event;\s*COMMIT;?$/

const DELIVERY_POINTS: DeliveryPoint[] = [
  { name: 'daemon.fan_out', received: [1], kill: atQuery(() => /INSERT INTO delivery_queue/, 'within') },
  { name: 'daemon.routed', received: [1], kill: atQuery(() => ROUTED, 'after') },
  { name: 'daemon.hinted_fan_out', received: [1], isHinted: true, kill: atQuery(() => /INSERT INTO delivery_queue/, 'within') },
  { name: 'daemon.hinted_routed', received: [1], isHinted: true, kill: atQuery(() => ROUTED, 'after') },
  { name: 'daemon.hinted_committing', received: [1, 2], isHinted: true, kill: atQuery(() => HINTED_END, 'before') },
  { name: 'daemon.hinted_committed', received: [1, 2], isHinted: true, kill: atQuery(() => HINTED_END, 'after') },
  { name: 'daemon.claimed', received: [1], isRouted: true, kill: atQuery((webhook) => new RegExp(`UPDATE lanes [^]*SET owner[^]*'${webhook}'`), 'after') },
  { name: 'daemon.before_connect', received: [1], kill: atQuery(READ, 'after') },
  { name: 'daemon.body_half_sent', received: [1], kill: halfSent },
  { name: 'daemon.sent', received: [1, 2], kill: sent },
  { name: 'daemon.head_received', received: [2], kill: atQuery(JUDGE, 'before') },
  { name: 'daemon.recording', received: [2], kill: atQuery(RECORD, 'within') },
  { name: 'daemon.recorded', received: [1], kill: atQuery(RECORD, 'after') },
  { name: 'drain.before_release', received: [1], kill: draining },
] // prettier-ignore

/** Mails follow after a second of failing here instead of twelve hours. */
function mailSettings({ mails }: Stage, deleteAfterSeconds: number): Record<string, string> {
  return {
    SMTP_URL: mails.url,
    WARN_AFTER_SECONDS: '1',
    WARN_BY_CLOCK_SECONDS: String(deleteAfterSeconds),
    DELETE_AFTER_SECONDS: String(deleteAfterSeconds),
    RETRY_SCHEDULE: Array(20).fill('1.1').join(','),
  }
}

/** A webhook fails until it is time for a mail; `mailsOf` are the Message-IDs that the mailbox ends up with, in order. */
function mailPoint(name: string, point: QueryPoint, deleteAfterSeconds: number, isRight: (mailbox: string[]) => boolean): CrashPoint {
  return {
    name,
    process: 'mail',
    async run(stage) {
      const { arena, receiver, mails } = stage
      const env = mailSettings(stage, deleteAfterSeconds)
      await stage.daemon?.stop()
      const daemon = await arena.startDaemon(env)
      const tenant = await arena.addTenant()
      const webhook = await arena.addWebhook(tenant, receiver.urlOf)
      receiver.behaviours.set(webhook, () => 500)
      const before = mails.taken.length
      await killAt(daemon, point, () => arena.addEvent(tenant))
      // The wait before the next try of a mail is cut short.
      const { knex } = arena.database
      await knex('mails').whereNotNull('due_at').update({ due_at: knex.ref('created_at') })
      stage.daemon = await arena.startDaemon(env)
      const wanted = deleteAfterSeconds < 60 ? ['deletion', 'warning'] : ['warning']
      await until('the mails', async () => {
        const kinds: string[] = await knex('mails').where({ webhook_id: webhook }).whereNotNull('sent_at').orderBy('kind').pluck('kind')
        return kinds.join() === wanted.join()
      })
      const mailbox = mails.taken.slice(before).map(({ messageId }) => messageId)
      must(isRight(mailbox), `the mailbox shows ${mailbox.length} mails, ${new Set(mailbox).size} different`)
      // So that it does not go on failing under the next point.
      await knex('webhooks').where({ id: webhook }).update({ state: 'deleted', epoch: knex.raw('epoch + 1') })
    },
  }
} // prettier-ignore

const DAY = 86_400

export const CRASH_POINTS: CrashPoint[] = [
  leadPoint('api.before_begin', /LEFT JOIN labs l FORCE INDEX \(PRIMARY\)/, 'before', false),
  leadPoint('api.after_lead', /INSERT INTO entries /, 'within', false),
  leadPoint('api.event_waits', /INSERT INTO unrouted_events/, 'within', false),
  leadPoint('api.after_event', /INSERT INTO event_bodies/, 'within', false),
  leadPoint('api.after_commit', /INSERT INTO entries /, 'after', true),
  leadPoint('api.foreseen', /FOR UPDATE NOWAIT/, 'within', false, PRACTICE),
  leadPoint('api.foreseen_written', /INSERT INTO staff_notifications/, 'within', false, PRACTICE),
  leadPoint('api.after_foreseen', /FOR UPDATE NOWAIT/, 'after', true, PRACTICE),
  afterReply,
  afterDelete,
  afterReactivate,
  ...DELIVERY_POINTS.map(deliveryPoint),
  mailPoint('mail.before_smtp', { statement: /^update `mails` set `due_at`/, when: 'after' }, DAY, (box) => box.length === 1),
  mailPoint('mail.after_250', { statement: /^update `mails` set [^]*`sent_at`/, when: 'before' }, DAY, (box) => box.length === 2 && box[0] === box[1]),
  mailPoint('sweeper.between_warn_and_delete', { statement: /INSERT INTO mails/, when: 'after' }, 4, (box) => box.length === 2 && box[0] !== box[1]),
] // prettier-ignore
