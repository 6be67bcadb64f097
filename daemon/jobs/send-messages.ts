import { insistOnMark, type Database } from '../../db/connection.ts'
import type { Clock } from '../../src/clock.ts'
import { GatewayFault, leavesTimeToCall } from '../../src/gateway-request.ts'
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
/** A gateway that has neither refused nor taken the first in so long is only slow with that one, as far as anybody knows. */
const PROBE_MS = 250
/** So many calls without an answer in a row, and it counts as down. */
const SILENT_CALLS = 2
const SILENT = 'ETIMEDOUT'

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
  /** It has answered, or is only slow with one: otherwise the first goes alone, so that a gateway that is down is asked once. */
  #isProven = false
  /** Behind a gateway that takes nothing all others wait as well, for the next run, without a try of their own. */
  #isDown = false
  #silentCalls = 0

  constructor(deps: SendMessagesDeps) {
    const { database, clock, log } = deps
    this.#deps = deps
    this.#sending = new DueSending({
      most: CALLS_AT_A_TIME,
      // What has failed before may well fail again, and end the run: it goes last.
      list: async (limit) =>
        (await listDueMessages(database.knex, clock.now(), limit)).sort((a, b) => a.tries - b.tries),
      keyOf: ({ eventId }) => eventId,
      handOver: (message) => this.#handOver(message),
      onFault: (error) => log.warn('messages.delayed', errorFields(error)),
      mayBegin: (underWay) => !this.#isDown && (this.#isProven || underWay === 0),
    })
  }

  begin(): Promise<void> {
    this.#ask()
    return this.#sending.begin()
  }

  run(): Promise<void> {
    this.#ask()
    return this.#sending.run()
  }

  stop(): Promise<void> {
    return this.#sending.stop()
  }

  /** Nothing is known of the gateway any more, unless calls are under way. */
  #ask(): void {
    if (this.#sending.underWay > 0) return
    this.#isProven = false
    this.#isDown = false
    this.#silentCalls = 0
  }

  async #handOver(message: DueMessage): Promise<void> {
    const probe = setTimeout(() => {
      this.#isProven = true
      void this.#sending.goOn()
    }, PROBE_MS)
    try {
      this.#learn(await sendMessage(this.#deps, message))
    } finally {
      clearTimeout(probe)
    }
  }

  #learn(outcome: 'another_has_it' | 'taken' | GatewayFault | Error): void {
    if (outcome === 'another_has_it') return
    if (!(outcome instanceof GatewayFault && outcome.isOutage)) {
      this.#isProven = true
      this.#silentCalls = 0
      return
    }
    this.#silentCalls += 1
    // One may have been slow with that message alone.
    if (outcome.code !== SILENT || this.#silentCalls >= SILENT_CALLS || !this.#isProven) this.#isDown = true
  }
}

/** @returns what became of it: another has it, or soon will; an error: it was not taken, and why */
async function sendMessage(deps: SendMessagesDeps, message: DueMessage): Promise<'another_has_it' | 'taken' | Error> {
  const { database, clock, log, gateway } = deps
  const eventId = publicEventId(message.eventId)
  const nextTryAt = new Date(clock.nowMs() + messageRetrySeconds(message.tries) * 1000)
  if (!(await claimMessage(database.knex, message, nextTryAt))) return 'another_has_it'
  if (!leavesTimeToCall(nextTryAt, clock.nowMs())) return 'another_has_it'
  const attempt = message.tries + 1
  // Its integrator writes to anybody, in the lab's name: a webhook may get that, a telephone may not.
  const isKeptBack = message.isSandbox && gateway.reachesPeople === true
  try {
    if (!isKeptBack) await gateway.send(contentOf(message))
  } catch (error) {
    log.warn('message.not_taken', { ...errorFields(error), eventId, attempt })
    return error as Error
  }
  // Somebody may hold the row for a while, as an erasure does, or the connection break; without it the gateway is asked a second time.
  await insistOnMark(() => recordMessageSent(database.knex, message.eventId, clock.now()))
  log.info(isKeptBack ? 'message.kept_back' : 'message.sent', { eventId, attempt })
  return 'taken'
}

/** @throws where the body is gone or holds no message: the row stays, and each further try says so again */
function contentOf({ body }: DueMessage): MessageContent {
  const content = body && JSON.parse(body.toString('utf8')).data?.message
  if (!content) throw new Error('the content of a message is missing')
  return content
}
