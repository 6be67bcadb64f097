import type { Lanes } from '../lanes.ts'

/** Sends what is due of a healthy webhook. */
export function deliverWebhook(lanes: Lanes): (webhookId: string) => Promise<void> {
  return (webhookId) => lanes.run(webhookId)
}
