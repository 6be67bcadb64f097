/**
 * Sends text messages right after the commit that made them, and again while their code lives. The row decides: a process
 * that is killed before it could mark a message leaves it to whoever finds it, under the same Idempotency-Key.
 */
import { randomInt } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Knex } from 'knex'
import { insistOnMark, withinBudget } from '../../db/connection.ts'
import type { Clock } from '../clock.ts'
import { seal, unseal, type Keys } from '../crypto.ts'
import { leavesTimeToCall } from '../gateway-request.ts'
import { errorFields, type Logger } from '../logger.ts'
import type { SmsGateway } from './sms-gateway.ts'
import { CLOCK_TOLERANCE_MS, CODE_TTL_MS } from './otp-rules.ts'
import { claimSms, findNewSms, listDueSms, recordSmsExpired, recordSmsSent, type Sms } from './sms-repository.ts'

/** Longer than a try takes, so that two processes never send one message at the same time. */
const RETRY_MS = 10_000
const LOOK_EVERY_MS = 5000
const MESSAGES_AT_A_TIME = 20
/**
 * A message is begun at any moment of so many milliseconds behind its answer: at once, the next request would wait for what is done for
 * a patient's number alone, and be a way to tell whose number it was.
 */
const SPREAD_MS = 200

export interface SmsSenderDeps {
  knex: Knex
  clock: Clock
  keys: Keys
  logger: Logger
  gateway: SmsGateway
  spreadMs?: number
}

/** Recipient and text as they are stored. */
export function sealSms(keys: Keys, smsId: string, to: string, text: string): Buffer {
  return seal(keys, Buffer.from(JSON.stringify({ to, text }), 'utf8'), `sms:${smsId}`)
}

export class SmsSender {
  readonly #deps: SmsSenderDeps
  readonly #underWay = new Set<Promise<void>>()
  #timer: NodeJS.Timeout | undefined
  #stopping = false

  constructor(deps: SmsSenderDeps) {
    this.#deps = deps
  }

  /** Looks for messages that another try, or another process, has left. */
  start(): void {
    let isLooking = false
    this.#timer = setInterval(() => {
      // A gateway that hangs makes one round long: the next waits for it.
      if (isLooking) return
      isLooking = true
      this.#run(this.sendDue().finally(() => (isLooking = false)))
    }, LOOK_EVERY_MS)
    this.#timer.unref()
  }

  /** Sends one message soon, after the answer of the call that made it. Never throws: what fails is tried again later. */
  sendSoon(smsId: string): void {
    const { spreadMs = SPREAD_MS } = this.#deps
    this.#run(sleep(randomInt(spreadMs + 1)).then(() => this.#sendOne(smsId)))
  }

  /** Everything that is due, and an end to what has expired. */
  async sendDue(): Promise<void> {
    const { knex, clock } = this.#deps
    // Two processes that look at once may each wait for rows of the other: the server lets one of them begin again.
    const latest = new Date(clock.nowMs() + CODE_TTL_MS + CLOCK_TOLERANCE_MS)
    await withinBudget(() => recordSmsExpired(knex, clock.now(), latest))
    for (const sms of await listDueSms(knex, clock.now(), MESSAGES_AT_A_TIME)) {
      // Each may take as long as the gateway: what waits goes out by another process, or never, once its code has expired.
      if (this.#stopping) return
      if (sms.expiresAt > clock.now()) await this.#send(sms)
    }
  }

  /** Resolves when nothing is under way any more. */
  async settle(): Promise<void> {
    await Promise.all(this.#underWay)
  }

  /** Begins to send nothing more that was left; resolves when what is under way has ended. */
  async stop(): Promise<void> {
    this.#stopping = true
    clearInterval(this.#timer)
    await this.settle()
  }

  #run(work: Promise<void>): void {
    const guarded = work
      .catch((error) => this.#deps.logger.warn('sms.delayed', errorFields(error)))
      .finally(() => this.#underWay.delete(guarded))
    this.#underWay.add(guarded)
  }

  async #sendOne(smsId: string): Promise<void> {
    const sms = await findNewSms(this.#deps.knex, smsId)
    if (sms) await this.#send(sms)
  }

  async #send(sms: Sms): Promise<void> {
    const { knex, clock, keys, gateway, logger } = this.#deps
    const nextTryAt = new Date(clock.nowMs() + RETRY_MS)
    if (!(await withinBudget(() => claimSms(knex, sms, nextTryAt)))) return
    if (!leavesTimeToCall(nextTryAt, clock.nowMs())) return
    try {
      const { to, text } = JSON.parse(unseal(keys, sms.content, `sms:${sms.id}`).toString('utf8'))
      await gateway.send({ id: sms.id, to, text })
    } catch (error) {
      logger.warn('sms.not_taken', { ...errorFields(error), attempt: sms.tries + 1 })
      return
    }
    // Without it the SMS would go out a second time.
    await insistOnMark(() => recordSmsSent(knex, sms.id, clock.now()))
    logger.info('sms.sent', { attempt: sms.tries + 1 })
  }
}
