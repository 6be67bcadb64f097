import { publicEventId } from '../ids.ts'
import type { components } from '../generated/operator.ts'

interface RecordedMessage {
  /** Of its event as well. */
  id: string
  labId: string
  type: components['schemas']['Message']['type']
  createdAt: Date
}

/** What whoever sends a message to a patient is told: ids alone. */
export function messageReply({ id, labId, type, createdAt }: RecordedMessage) {
  return {
    status: 201 as const,
    body: {
      messageId: id,
      eventId: publicEventId(id),
      labID: labId,
      type,
      state: 'offered' as const,
      createdAt: createdAt.toISOString(),
    },
  }
}
