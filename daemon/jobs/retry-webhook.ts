import type { Lanes } from '../lanes.ts'

/**
 * Sends what is due of a webhook that fails. A job kind of its own, so that no number of them takes the places of the
 * healthy; the way of sending is the same.
 */
export function retryWebhook(lanes: Lanes): (webhookId: string) => Promise<void> {
  return (webhookId) => lanes.run(webhookId)
}
