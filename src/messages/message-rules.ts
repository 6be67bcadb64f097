/**
 * What becomes of a message when a copy of it has ended, and when the gateway is asked again. Pure.
 */

/**
 * How a copy ended:
 * - `taken`: a webhook answered 2xx and sends the message in our place;
 * - `returned`: its webhook was deleted, or its last retry failed;
 * - `lapsed`: its webhook was auto-deleted.
 */
export type CopyEnd = 'taken' | 'returned' | 'lapsed'

/**
 * What ended the copies of an epoch: a deletion ends that of an active webhook; one of a webhook that was auto-deleted before
 * finds its copies' epoch ended already.
 * @param webhook as it is now: not active, or active again under a newer epoch
 */
export function endOfOldCopy(webhook: { state: string; epoch: number }, copyEpoch: number): 'returned' | 'lapsed' {
  return webhook.state === 'deleted' && copyEpoch === webhook.epoch - 1 ? 'returned' : 'lapsed'
}

/** Of an auto-deleted webhook's messages the older ones are sent by nobody: a patient is not reminded of yesterday's visit. */
export const HAND_BACK_MAX_AGE_MS = 86_400_000

const RETRY_FIRST_SECONDS = 10
const RETRY_MOST_SECONDS = 900

/**
 * When to ask the gateway again if this try fails, in seconds from now. Always longer than a try takes, so that two daemons
 * never ask at the same time.
 */
export function messageRetrySeconds(tries: number): number {
  return Math.min(RETRY_FIRST_SECONDS * 2 ** Math.min(tries, 10), RETRY_MOST_SECONDS)
}
