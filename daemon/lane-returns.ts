/**
 * Giving lanes back: one by one as each has run dry, and together when the daemon stops.
 */
import type { Knex } from 'knex'
import { freeLanes } from '../src/deliveries/lanes-repository.ts'
import { errorFields, type Logger } from '../src/logger.ts'
import { LaneWarnings } from './lane-warnings.ts'
import type { LaneOwnership } from './lane-ownership.ts'

const SETTLE_RETRY_MS = 200

export interface LaneReturnsDeps {
  knex: Knex
  ownership: LaneOwnership
  log: Logger
  token: () => string
  stopping: () => boolean
}

export class LaneReturns {
  readonly #deps: LaneReturnsDeps
  readonly #settleRetried: LaneWarnings
  /** Of webhooks that nothing is under way for any more since the daemon stops, their lanes still being ours by their rows. */
  #ended: string[] = []

  constructor(deps: LaneReturnsDeps) {
    this.#deps = deps
    this.#settleRetried = new LaneWarnings(deps.log, 'lane.settle_retried')
  }

  /** Until it is done or the lane is not ours any more: a lane that nobody runs must not stay owned. */
  async giveBack(webhookId: string, token: string): Promise<void> {
    for (;;) {
      try {
        await this.#deps.ownership.giveBack({ webhookId, token })
        return
      } catch (error) {
        if (this.#deps.token() !== token) return
        this.#settleRetried.add(webhookId, error)
        await new Promise((resolve) => setTimeout(resolve, SETTLE_RETRY_MS))
        if (this.#deps.stopping()) return
      }
    }
  }

  ended(webhookIds: string[]): void {
    this.#ended.push(...webhookIds)
  }

  /** Each is still due as it was, and its next owner settles it. */
  async freeEnded(isBusy: (webhookId: string) => boolean): Promise<void> {
    const { knex, token, log } = this.#deps
    const webhookIds = this.#ended.splice(0).filter((webhookId) => !isBusy(webhookId))
    if (webhookIds.length === 0) return
    try {
      await freeLanes(knex, webhookIds, token())
    } catch (error) {
      log.debug('lanes.free_retried', errorFields(error))
      this.#ended.push(...webhookIds)
    }
  }

  stop(): void {
    this.#settleRetried.stop()
  }
}
