/**
 * Faults in the life cycle that somebody could make. Each is a change of text that must be found once.
 */
import type { Breakage } from './broken-copies.ts'

const RULES = 'src/webhooks/webhook-health.ts'
const CONFIG = 'src/config.ts'
const RECORDING = 'src/deliveries/attempts-repository.ts'
const RECORDED_HEALTH = 'src/deliveries/recorded-health.ts'
const RECORDING_RULES = 'src/deliveries/recording-rules.ts'

const RULES_TEST = 'test/webhooks/webhook-health.test.ts'
const MODEL_TEST = 'test/webhooks/life-cycle-model.test.ts'
const DAEMON_TEST = 'test/daemon/life-cycle.test.ts'
const CHECK_TEST = 'test/daemon/check-webhook-health.test.ts'
const RECORDING_TEST = 'test/daemon/life-cycle-recording.test.ts'
const CLIENT_TEST = 'test/daemon/webhook-client.test.ts'
const TEST_EVENT_TEST = 'test/webhooks/test-event.test.ts'

export const MUTANTS: Breakage[] = [
  {
    name: 'the warning comes after 12 hours, not at 12',
    file: RULES,
    edits: [['failingSeconds >= limits.warnAfterSeconds', 'failingSeconds > limits.warnAfterSeconds']],
    tests: [RULES_TEST],
  },
  {
    name: 'the deletion comes after 24 hours, not at 24',
    file: RULES,
    edits: [['failingSeconds >= limits.deleteAfterSeconds', 'failingSeconds > limits.deleteAfterSeconds']],
    tests: [RULES_TEST],
  },
  {
    name: 'the clock warns after 23 hours, not at 23',
    file: RULES,
    edits: [['>= limits.warnByClockSeconds', '> limits.warnByClockSeconds']],
    tests: [RULES_TEST],
  },
  {
    name: 'warning after 11 hours',
    file: CONFIG,
    edits: [['Math.min(43_200', 'Math.min(39_600']],
    tests: [DAEMON_TEST],
  },
  {
    name: 'warning by the clock after 22 hours',
    file: CONFIG,
    edits: [['Math.min(82_800', 'Math.min(79_200']],
    tests: [CHECK_TEST],
  },
  {
    name: 'deletion after 23 hours',
    file: CONFIG,
    edits: [["'DELETE_AFTER_SECONDS', 86_400", "'DELETE_AFTER_SECONDS', 82_800"]],
    tests: [DAEMON_TEST],
  },
  {
    name: 'a 2xx clears nothing',
    file: RULES,
    edits: [
      ['if (verdict.ok) return { health: HEALTHY, effects: [] }', 'if (verdict.ok) return { health, effects: [] }'],
    ],
    tests: [RULES_TEST],
  },
  {
    name: 'each failure moves the time of the first',
    file: RULES,
    edits: [
      [
        'const firstFailureAt = notAheadOf(endedAt, health.firstFailureAt) ?? endedAt',
        'const firstFailureAt = endedAt',
      ],
    ],
    tests: [RULES_TEST],
  },
  {
    name: 'each failed attempt after 12 hours warns',
    file: RULES,
    edits: [['failing.warnedAt === null && failingSeconds >=', 'failingSeconds >=']],
    tests: [RULES_TEST],
  },
  {
    name: 'the clock deletes',
    file: RULES,
    edits: [
      [
        "health: { ...health, warnedAt: now }, effects: ['warn'] }",
        "health: { ...health, warnedAt: now }, effects: ['warn', 'auto_delete'] }",
      ],
    ],
    tests: [RULES_TEST],
  },
  {
    name: 'a redirect counts as success',
    file: 'daemon/webhook-client.ts',
    edits: [['const ok = status <= 299', 'const ok = status <= 399']],
    tests: [CLIENT_TEST],
  },
  {
    name: 'the mail is written outside the transaction',
    file: RECORDING,
    edits: [
      ['      ...mails,\n', ''],
      ['      COMMIT,\n    ])', '      COMMIT,\n      ...mails,\n    ])'],
    ],
    tests: [RECORDING_TEST],
  },
  {
    name: 'webhooks on one URL share their record',
    file: RECORDED_HEALTH,
    edits: [
      [
        'last_error = ?, warned_at = ? WHERE id = ?',
        'last_error = ?, warned_at = ? WHERE endpoint = (SELECT x.endpoint FROM (SELECT id, endpoint FROM webhooks) x WHERE x.id = ?)',
      ],
    ],
    tests: [DAEMON_TEST],
  },
  {
    name: 'copies that wait when a webhook is auto-deleted stay good',
    file: RECORDED_HEALTH,
    edits: [
      ["SET state = 'auto_deleted', epoch = epoch + 1, inactive_from", "SET state = 'auto_deleted', inactive_from"],
    ],
    tests: [DAEMON_TEST, MODEL_TEST],
  },
  {
    name: 'an auto-deleted webhook is still routed to',
    file: RECORDED_HEALTH,
    edits: [['inactive_from = ${ENDING_TIME},', 'inactive_from = NULL,']],
    tests: [DAEMON_TEST],
  },
  {
    name: 'the minute’s check takes no lock',
    file: 'src/webhooks/webhook-health-repository.ts',
    edits: [["state: 'active' }).forUpdate().first()", "state: 'active' }).first()"]],
    tests: [CHECK_TEST, MODEL_TEST],
  },
  {
    name: 'reactivation keeps the record of failure',
    file: 'src/webhooks/webhooks-repository.ts',
    edits: [['      first_failure_at: null,\n', '']],
    tests: [MODEL_TEST],
  },
  {
    name: 'an attempt of before a reactivation judges',
    file: RECORDING_RULES,
    edits: [["lane.state === 'active' && lane.epoch === result.epoch", "lane.state === 'active'"]],
    tests: [RECORDING_TEST],
  },
  {
    name: 'an attempt counts from its start, not from its end',
    file: RECORDING_RULES,
    edits: [['result.startedAt.getTime() + Math.round(result.durationMs)', 'result.startedAt.getTime()']],
    tests: [MODEL_TEST],
  },
  {
    name: 'a test event counts as an attempt',
    file: RECORDING_RULES,
    edits: [['const judged = current && !result.isTest', 'const judged = current']],
    tests: [TEST_EVENT_TEST],
  },
]
