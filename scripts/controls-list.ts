/**
 * The guards that `make controls` switches off, one at a time.
 */
import type { Breakage } from './broken-copies.ts'

const GUARDS_TEST = 'test/guards.test.ts'

const WITHOUT_ADDRESS_FILTER: Breakage['edits'] = [
  ['if (literal && !options.policy.allows(host)) throw', 'if (host === null) throw'],
  ['addresses.length === 0 || !addresses.every(policy.allows)', 'addresses.length < 0'],
  ['LOOPBACK.filter(policy.allows)', 'LOOPBACK'],
] // prettier-ignore

export const CONTROLS: Breakage[] = [
  {
    name: 'outbox: the event is committed behind the lead, not with it',
    file: 'src/crm/entries-repository.ts',
    edits: [
      ['    waiting,\n    ...guardStatements(made),\n    ...recorded,\n', '    ...guardStatements(made),\n'],
      [
        '    ...turnStatements(made),\n  ]',
        "    ...turnStatements(made),\n    { sql: 'COMMIT' },\n    { sql: 'START TRANSACTION' },\n    waiting,\n    ...recorded,\n  ]",
      ],
    ],
    tests: ['test/crash-points.test.ts'],
    only: 'api.after_event',
  },
  {
    name: 'owner check: results are written whoever owns the lane',
    file: 'src/deliveries/attempts-repository.ts',
    edits: [['AND owner = ? ORDER BY webhook_id FOR UPDATE', 'AND ? IS NOT NULL ORDER BY webhook_id FOR UPDATE']],
    tests: [GUARDS_TEST],
    only: 'has lost its lane',
  },
  {
    name: 'owner check: so are successes of webhooks that are known as healthy',
    file: 'src/deliveries/known-lanes.ts',
    edits: [['IF(owner = ? AND last_seq =', 'IF(? IS NOT NULL AND last_seq =']],
    tests: [GUARDS_TEST],
    only: 'knows its lane as a healthy one',
  },
  {
    name: 'budget of their own: failing and slow webhooks take slots of the healthy',
    file: 'daemon/lane.ts',
    edits: [["this.#state.failing || this.#inFlight.isSlow ? 'retry' : 'healthy'", "this.#inFlight.isSlow ? 'healthy' : 'healthy'"]],
    tests: [GUARDS_TEST],
    only: 'hold up nobody else',
  },
  {
    name: 'unique guard rows: a second one for the day is taken for the first',
    file: 'src/crm/entries-repository.ts',
    edits: [["sql: 'INSERT INTO entry_day_guards", "sql: 'INSERT IGNORE INTO entry_day_guards"]],
    tests: ['test/api-races.test.ts'],
    only: 'leads at once that share',
  },
  {
    name: 'unique guard rows: a second webhook for an event of a party is taken beside the first',
    file: 'src/webhooks/webhooks-repository.ts',
    edits: [['    )\n    return []', '    ).onConflict().ignore()\n    return []']],
    tests: ['test/api-races.test.ts'],
    only: 'one active webhook an event',
  },
  {
    name: 'unique barcode: what is compared is the barcode of one pre-booking alone',
    file: 'src/billing/pre-bookings-repository.ts',
    edits: [['barcodeHash(preBooking.barcode)', 'barcodeHash(preBooking.id + preBooking.barcode)']],
    tests: ['test/api-races.test.ts'],
    only: 'pre-bookings at once',
  },
  {
    name: 'address filter: every address may be called',
    file: 'daemon/endpoint-connector.ts',
    edits: WITHOUT_ADDRESS_FILTER,
    tests: ['test/daemon/webhook-client.test.ts'],
    only: 'literal address that is not opened',
  },
  {
    name: 'address filter, in a network where every refused address listens',
    file: 'daemon/endpoint-connector.ts',
    edits: WITHOUT_ADDRESS_FILTER,
    tests: ['test/scripts/ssrf.test.ts'],
  },
  {
    name: 'byte cap: an answer is read for as long as it comes',
    file: 'daemon/http-answer.ts',
    edits: [['if (this.#bodyBytes > BODY_READ_BYTES)', 'if (this.#bodyBytes < 0)']],
    tests: [GUARDS_TEST],
    only: 'answer without an end',
  },
  {
    name: "row lock: a webhook's state is read without its lock",
    file: 'src/deliveries/attempts-repository.ts',
    edits: [['WHERE id IN (?) ORDER BY id FOR UPDATE`', 'WHERE id IN (?) ORDER BY id`']],
    tests: [GUARDS_TEST],
    only: 'while its webhook is deleted',
  },
  {
    name: 'allow list of the log: the line of a request says where it went, with its query',
    file: 'src/app.ts',
    edits: [['        route: trace.route,', '        route: req.originalUrl,']],
    tests: ['test/secrecy/secrecy.test.ts'],
    only: 'a line that a process has logged',
  },
] // prettier-ignore
