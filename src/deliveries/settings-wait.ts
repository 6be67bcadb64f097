/**
 * Waits until a webhook's lane works with the settings that were just committed.
 */
import type { Knex } from 'knex'
import { LANE_VIEW_MAX_AGE_MS, settingsAreUnread } from './lanes-repository.ts'

const LOOK_EVERY_MS = 10

/**
 * Resolves when no attempt can start any more with settings from before the caller's commit: the lane has no owner, or its
 * owner has read them again, or so much time has passed that no owner may still work with what it read before. The last
 * needs nobody's answer, so a daemon that is dead, stopped or cut off from the database delays the caller by no more.
 */
export async function untilSettingsAreRead(knex: Knex, webhookId: string): Promise<void> {
  let over = false
  const tooOld = new Promise<void>((resolve) => setTimeout(resolve, LANE_VIEW_MAX_AGE_MS)).then(() => {
    over = true
  })
  async function look(): Promise<void> {
    // A database that does not answer leaves the time alone to decide.
    while (!over && (await settingsAreUnread(knex, webhookId).catch(() => true))) {
      await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS))
    }
  }
  await Promise.race([look(), tooOld])
}
