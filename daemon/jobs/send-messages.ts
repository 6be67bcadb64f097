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

/** Calls to the gateway at a time, of this daemon. */
const CALLS_AT_A_TIME = 8
const MESSAGES_AT_A_TIME = 100

export interface SendMessagesDeps {
  database: Database
  clock: Clock
  log: Logger
  gateway: MessageGateway
}

export interface MessageSending {
  /** Sends what is due. One run at a time: a call meanwhile resolves after a further run that sees what it was about. */
  run(): Promise<void>
  /** Starts nothing more; resolves when nothing is under way. */
  stop(): Promise<void>
}

/**
 * Sends the messages that go the normal way, several at a time, until none is due. A message is claimed for one try by its
 * row, so any number of daemons may do this at once; one that the gateway has taken and that could not be marked goes out
 * again later, under the same Idempotency-Key.
 */
export function sendMessages(deps: SendMessagesDeps): MessageSending {
  let running: Promise<void> | undefined
  let next: Promise<void> | undefined
  let stopped = false

  const run = async (): Promise<void> => {
    if (stopped) return
    if (!running) {
      running = sendDue(deps, () => stopped).finally(() => (running = undefined))
      return running
    }
    next ??= running
      .catch(() => {})
      .then(() => {
        next = undefined
        return run()
      })
    return next
  }

  return {
    run,
    async stop() {
      stopped = true
      await running?.catch(() => {})
    },
  }
}

async function sendDue(deps: SendMessagesDeps, stopped: () => boolean): Promise<void> {
  const { database, clock } = deps
  for (;;) {
    const due = await listDueMessages(database.knex, clock.now(), MESSAGES_AT_A_TIME)
    const isLast = due.length < MESSAGES_AT_A_TIME
    // What has failed before may well fail again, and end the run: it goes last.
    due.sort((a, b) => a.tries - b.tries)
    let down = false
    const work = async (): Promise<void> => {
      for (let message = due.shift(); message && !down && !stopped(); message = due.shift()) {
        // Behind a gateway that takes nothing all others wait as well, for the next run, without a try of their own.
        if ((await sendMessage(deps, message)) === 'gateway_down') down = true
      }
    }
    // The first goes alone, so that a gateway that is down is asked once in a run.
    const first = due.shift()
    if (first && !stopped()) down = (await sendMessage(deps, first)) === 'gateway_down'
    const workers = await Promise.allSettled(Array.from({ length: CALLS_AT_A_TIME }, work))
    for (const worker of workers) if (worker.status === 'rejected') throw worker.reason
    if (isLast || down || stopped()) return
  }
}

async function sendMessage(deps: SendMessagesDeps, message: DueMessage): Promise<'done' | 'gateway_down'> {
  const { database, clock, log, gateway } = deps
  const eventId = publicEventId(message.eventId)
  const nextTryAt = new Date(clock.nowMs() + messageRetrySeconds(message.tries) * 1000)
  if (!(await claimMessage(database.knex, message, nextTryAt))) return 'done'
  const attempt = message.tries + 1
  try {
    await gateway.send(contentOf(message))
  } catch (error) {
    log.warn('message.not_taken', { ...errorFields(error), eventId, attempt })
    return error instanceof GatewayFault && error.isOutage ? 'gateway_down' : 'done'
  }
  // Somebody may hold the row for a while, as an erasure does, or the connection break; without it the gateway is asked a second time.
  await insistOnMark(() => recordMessageSent(database.knex, message.eventId, clock.now()))
  log.info('message.sent', { eventId, attempt })
  return 'done'
}

/** @throws where the body is gone or holds no message: the row stays, and each further try says so again */
function contentOf({ body }: DueMessage): MessageContent {
  const content = body && JSON.parse(body.toString('utf8')).data?.message
  if (!content) throw new Error('the content of a message is missing')
  return content
}
