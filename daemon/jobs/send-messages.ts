import { insistOnMark, type Database } from '../../db/connection.ts'
import type { Clock } from '../../src/clock.ts'
import { GatewayFault } from '../../src/gateway-request.ts'
import { publicEventId } from '../../src/ids.ts'
import { errorFields, type Logger } from '../../src/logger.ts'
import type { MessageContent, MessageGateway } from '../../src/messages/message-gateway.ts'
import { messageRetrySeconds } from '../../src/messages/message-rules.ts'
import {
  claimMessage,
  listDueMessages,
  recordMessageSent,
  type DueMessage,
} from '../../src/messages/messages-repository.ts'
import { DueSending } from '../due-sending.ts'

/** Calls to the gateway at a time, of this daemon. */
const CALLS_AT_A_TIME = 8
const MESSAGES_AT_A_TIME = 100
/** A gateway that has neither refused nor taken the first in so long is only slow with that one, as far as anybody knows. */
const PROBE_MS = 250
/** So many calls without an answer in a row, and it counts as down. */
const SILENT_CALLS = 2

export interface SendMessagesDeps {
  database: Database
  clock: Clock
  log: Logger
  gateway: MessageGateway
}

export interface MessageSending {
  /** Begins to send what is due, and resolves when that is begun. */
  begin(): Promise<void>
  /** Sends what is due. A call meanwhile sees what it was about. */
  run(): Promise<void>
  /** Starts nothing more; resolves when nothing is under way. */
  stop(): Promise<void>
}

/**
 * Sends the messages that go the normal way, several at a time, until none is due. One that the gateway has taken and that could not be
 * marked goes out again later, under the same Idempotency-Key.
 */
export function sendMessages(deps: SendMessagesDeps): MessageSending {
  const outbox = new MessageOutbox(deps)
  return { begin: () => outbox.begin(), run: () => outbox.run(), stop: () => outbox.stop() }
}

class MessageOutbox {
  readonly #deps: SendMessagesDeps
  readonly #sending: DueSending<DueMessage>
  /** Due, as they were at the last look. */
  #due: DueMessage[] = []
  #isAllSeen = false
  /** It has answered, or is only slow with one: otherwise the first goes alone, so that a gateway that is down is asked once. */
  #isProven = false
  #isDown = false
  #silentCalls = 0

  constructor(deps: SendMessagesDeps) {
    this.#deps = deps
    this.#sending = new DueSending({
      most: CALLS_AT_A_TIME,
      claimDue: (room) => this.#claimDue(room),
      handOver: (message) => this.#handOver(message),
    })
  }

  async begin(): Promise<void> {
    this.#lookAnew()
    await this.#sending.begin()
  }

  async run(): Promise<void> {
    this.#lookAnew()
    await this.#sending.run()
  }

  stop(): Promise<void> {
    return this.#sending.stop()
  }

  #lookAnew(): void {
    this.#due = []
    this.#isAllSeen = false
    if (this.#sending.underWay > 0) return
    this.#isProven = false
    this.#isDown = false
    this.#silentCalls = 0
  }

  async #claimDue(room: number): Promise<DueMessage[]> {
    const { knex } = this.#deps.database
    // Behind a gateway that takes nothing all others wait as well, for the next run, without a try of their own.
    const mayBegin = () => !this.#isDown && (this.#isProven || this.#sending.underWay === 0)
    const claimed: DueMessage[] = []
    while (mayBegin() && claimed.length < (this.#isProven ? room : 1)) {
      const message = this.#due.shift()
      if (message) {
        if (await claimMessage(knex, message, this.#nextTryAt(message))) claimed.push(message)
      } else if (this.#isAllSeen) break
      else await this.#readDue()
    }
    return claimed
  }

  async #readDue(): Promise<void> {
    const due = await listDueMessages(this.#deps.database.knex, this.#deps.clock.now(), MESSAGES_AT_A_TIME)
    this.#isAllSeen = due.length < MESSAGES_AT_A_TIME
    // What has failed before may well fail again, and end the run: it goes last.
    this.#due = due.sort((a, b) => a.tries - b.tries)
  }

  #nextTryAt({ tries }: DueMessage): Date {
    return new Date(this.#deps.clock.nowMs() + messageRetrySeconds(tries) * 1000)
  }

  async #handOver(message: DueMessage): Promise<void> {
    const probe = setTimeout(() => {
      this.#isProven = true
      void this.#sending.begin().catch((error) => this.#deps.log.warn('messages.delayed', errorFields(error)))
    }, PROBE_MS)
    try {
      const fault = await sendMessage(this.#deps, message)
      this.#learn(fault)
    } finally {
      clearTimeout(probe)
    }
  }

  #learn(fault: unknown): void {
    const outage = fault instanceof GatewayFault && fault.isOutage ? fault.code : undefined
    if (outage === undefined) {
      this.#isProven = true
      this.#silentCalls = 0
      return
    }
    this.#silentCalls += 1
    // One may have been slow with that message alone.
    if (outage !== 'ETIMEDOUT' || this.#silentCalls >= SILENT_CALLS || !this.#isProven) this.#isDown = true
  }
}

/** @returns why it was not taken; undefined: it was */
async function sendMessage(deps: SendMessagesDeps, message: DueMessage): Promise<unknown> {
  const { database, clock, log, gateway } = deps
  const eventId = publicEventId(message.eventId)
  const attempt = message.tries + 1
  try {
    await gateway.send(contentOf(message))
  } catch (error) {
    log.warn('message.not_taken', { ...errorFields(error), eventId, attempt })
    return error
  }
  // Somebody may hold the row for a while, as an erasure does, or the connection break; without it the gateway is asked a second time.
  await insistOnMark(() => recordMessageSent(database.knex, message.eventId, clock.now()))
  log.info('message.sent', { eventId, attempt })
  return undefined
}

/** @throws where the body is gone or holds no message: the row stays, and each further try says so again */
function contentOf({ body }: DueMessage): MessageContent {
  const content = body && JSON.parse(body.toString('utf8')).data?.message
  if (!content) throw new Error('the content of a message is missing')
  return content
}
