/**
 * What the doctor would call off in the database of a suite, and why it is there: written by the tests past the code that keeps
 * these rows true. Every other check holds for these suites, and every check for all others.
 */
interface LeftBehind {
  because: string
  /** Names of the doctor's checks. */
  checks: string[]
  /** Below `test/`. */
  files: string[]
}

/** Tables filled until every plan tells: the doctor would read them for a minute. */
export const TOO_LARGE = ['db/query-plans.test.ts']

export const LEFT_BEHIND: LeftBehind[] = [
  {
    because:
      'webhooks are registered while events of their labs are fanned out, which the examination allows for elsewhere',
    checks: ['event_not_fanned_out'],
    files: ['soak.test.ts'],
  },
  {
    because: 'copies are put into the queue and taken out of it by hand, as a recorder would',
    checks: ['body_without_event', 'event_not_fanned_out'],
    files: ['daemon/lane-backlog.test.ts'],
  },
  {
    because: 'a webhook is put into its state by a statement (`autoDelete`), without the attempts that lead there',
    checks: ['health_differs', 'webhook_state_incoherent'],
    files: [
      'api-races.test.ts',
      'crash-points.test.ts',
      'fuzz/contract-fuzz.test.ts',
      'fuzz/injections.test.ts',
      'fuzz/prism-proxy.test.ts',
      'messages/interleavings.test.ts',
      'metrics/metrics.test.ts',
      'operator/operator-audit.test.ts',
      'operator/webhook-keeping.test.ts',
      'security/hostile-fields.test.ts',
      'tenancy/operator-tenancy.test.ts',
      'tenancy/tenancy.test.ts',
      'webhooks/deactivated-webhooks.test.ts',
      'webhooks/secret-rotation.test.ts',
      'webhooks/test-event.test.ts',
      'webhooks/webhook-races.test.ts',
      'webhooks/webhooks.test.ts',
    ],
  },
  {
    because: 'a webhook is said to have failed for a day, without the attempts of that day',
    checks: ['health_differs'],
    files: ['messages/deletions.test.ts'],
  },
  {
    because: 'attempts are made at a time that is made up, their webhook is reactivated at that of the database',
    checks: ['health_differs'],
    files: ['webhooks/life-cycle-model.test.ts'],
  },
  {
    because: 'between two tests the webhooks of the first are taken away, and what was sent to them stays',
    checks: ['attempt_without_delivery', 'delivery_without_webhook'],
    files: [
      'daemon/delivery.test.ts',
      'daemon/life-cycle-late.test.ts',
      'daemon/check-webhook-health.test.ts',
      'daemon/life-cycle.test.ts',
      'daemon/send-mails.test.ts',
      'deliveries/delivery-log-recovery.test.ts',
      'messages/hand-back.test.ts',
      'messages/message-states.test.ts',
      'webhooks/reactivated-delivery.test.ts',
      'webhooks/secret-rotation.test.ts',
      'webhooks/test-event.test.ts',
    ],
  },
  {
    because:
      'between two tests the messages of the first, or what waits of them, are taken away, and their events stay',
    checks: ['message_offered_to_nobody', 'message_waits_for_nothing', 'message_without_row'],
    files: [
      'daemon/follow-clock.test.ts',
      'deliveries/delivery-log-recovery.test.ts',
      'messages/hand-back.test.ts',
      'messages/message-states.test.ts',
      'messages/send-messages.test.ts',
    ],
  },
  {
    because: 'a lane is taken away under the recorder',
    checks: ['lane_missing'],
    files: ['deliveries/known-lanes.test.ts'],
  },
  {
    because: 'lanes are taken by tokens of no daemon',
    checks: ['lane_owned_by_nobody'],
    files: [
      'deliveries/known-lanes.test.ts',
      'guards.test.ts',
      'messages/interleavings.test.ts',
      'messages/last-copies.test.ts',
      'messages/message-states.test.ts',
      'metrics/metrics.test.ts',
    ],
  },
  {
    because:
      'events of long ago, their deliveries and what waits are written as they would stand, without what led there',
    checks: [
      'delivery_contradicts_its_attempts',
      'delivery_to_the_wrong_webhook',
      'event_not_fanned_out',
      'event_without_body',
      'health_differs',
      'lane_behind_its_attempts',
      'lane_not_due',
      'queued_without_body',
      'webhook_state_incoherent',
    ],
    files: [
      'deliveries/delivery-log-pages.test.ts',
      'deliveries/delivery-log-recovery.test.ts',
      'deliveries/delivery-log-repair.test.ts',
      'deliveries/delivery-log.test.ts',
    ],
  },
  {
    because: 'an event with an ended delivery, without its attempts and other copies (`buildEvent`, `buildEnded`)',
    checks: ['delivery_contradicts_its_attempts', 'event_not_fanned_out'],
    files: [
      'messages/message-states.test.ts',
      'operator/operator-audit.test.ts',
      'security/hostile-fields.test.ts',
      'tenancy/operator-tenancy.test.ts',
    ],
  },
  {
    because: 'rows of one table or two by the thousand, for what they cost or where they end',
    checks: ['body_without_event', 'day_guard_left_over', 'delivery_without_event', 'delivery_without_webhook'],
    files: [
      'deliveries/ended-rows.test.ts',
      'retention/purge-keys.test.ts',
      'retention/purge-size.test.ts',
      'webhooks/deletion-backlog.test.ts',
    ],
  },
  {
    because: 'rows that nobody can use, on purpose',
    checks: ['event_without_body', 'queued_without_body', 'webhook_without_secret'],
    files: ['daemon/poison-rows.test.ts'],
  },
  {
    because: 'webhooks of a party are written without the row that keeps their place',
    checks: ['party_guard_missing'],
    files: ['events/event-routing.test.ts', 'events/routing-oracle.test.ts'],
  },
  {
    because: 'days pass by the clock of the statements, and the database is looked at by its own',
    checks: ['event_not_fanned_out', 'party_guard_left_over', 'webhook_state_incoherent'],
    files: ['webhooks/life-cycle-model.test.ts'],
  },
  {
    because:
      'webhooks fail and are deleted within seconds, by settings that the doctor does not have here; see `buildEnded`',
    checks: ['delivery_contradicts_its_attempts', 'event_not_fanned_out', 'health_differs'],
    files: ['secrecy/secrecy.test.ts'],
  },
]
