/**
 * Faults in rules other than the life cycle's that somebody could make. Each is a change of text that must be found once.
 */
import type { Breakage } from './broken-copies.ts'

const ENTRY_RULES = 'src/crm/entry-rules.ts'
const TELECALLERS = 'src/crm/telecaller-rules.ts'
const CRM_BUDGET = 'src/crm/crm-budget-rules.ts'
const PRE_BOOKINGS = 'src/billing/pre-bookings-repository.ts'
const OTP_RULES = 'src/patients/otp-rules.ts'
const TOKEN_RULES = 'src/auth/token-rules.ts'
const ROUTING = 'src/events/event-routing.ts'
const RETRIES = 'src/deliveries/retry-schedule.ts'
const ERASED = 'src/erasure/emptied-records-repository.ts'

const DUPLICATES_TEST = 'test/crm/duplicate-entries.test.ts'
const TELECALLERS_TEST = 'test/crm/telecaller-rules.test.ts'
const BUDGET_TEST = 'test/crm/rate-limit.test.ts'
const CATALOGUE_TEST = 'test/catalogue/catalogue.test.ts'
const PRE_BOOKINGS_TEST = 'test/billing/pre-bookings.test.ts'
const OTP_TEST = 'test/patients/otp-rules.test.ts'
const TOKEN_TEST = 'test/auth/token-rules.test.ts'
const ROUTING_TEST = 'test/events/event-routing.test.ts'
const RETRY_TEST = 'test/deliveries/retry-schedule.test.ts'
const ERASURE_TEST = 'test/erasure/erasure.test.ts'
const REPORTS_TEST = 'test/patients/reports.test.ts'

export const RULE_MUTANTS: Breakage[] = [
  {
    name: 'a second entry with the day’s e-mail is taken',
    file: ENTRY_RULES,
    edits: [["...(email ? [{ day, kind: 'email' as const, valueHash: hashValue(email) }] : [])", '...[]']],
    tests: [DUPLICATES_TEST],
  },
  {
    name: 'the day of an entry is that of UTC',
    file: ENTRY_RULES,
    edits: [
      ['localDay(entry.createdAt.getTime(), timeZone)', "localDay(entry.createdAt.getTime(), timeZone && 'UTC')"],
    ],
    tests: [DUPLICATES_TEST],
  },
  {
    name: 'who has just got a lead is next again',
    file: TELECALLERS,
    edits: [['lastId === null || id > lastId', 'lastId === null || id >= lastId']],
    tests: [TELECALLERS_TEST],
  },
  {
    name: 'of those with the fewest leads the first is taken, whoever was last',
    file: TELECALLERS,
    edits: [['inTurn.find((', 'candidates.find((']],
    tests: [TELECALLERS_TEST],
  },
  {
    name: 'an account has 61 CRM calls',
    file: CRM_BUDGET,
    edits: [['CRM_CALLS = 60', 'CRM_CALLS = 61']],
    tests: [BUDGET_TEST],
  },
  {
    name: 'a CRM call counts for 59 seconds',
    file: CRM_BUDGET,
    edits: [['CRM_WINDOW_SECONDS = 60', 'CRM_WINDOW_SECONDS = 59']],
    tests: [BUDGET_TEST],
  },
  {
    name: 'a test has its standard price, whatever was negotiated',
    file: 'src/catalogue/tests-repository.ts',
    edits: [['COALESCE(p.cost, t.cost)', 'COALESCE(t.cost, p.cost)']],
    tests: [CATALOGUE_TEST],
    only: 'where it has one',
  },
  {
    name: 'a package has its standard price, whatever was negotiated',
    file: 'src/catalogue/packages-repository.ts',
    edits: [['row.negotiated_price ?? row.total', 'row.total ?? row.negotiated_price']],
    tests: [CATALOGUE_TEST],
    only: 'where it has one',
  },
  {
    name: 'a barcode is compared with its blanks',
    file: 'src/billing/pre-booking-rules.ts',
    edits: [['body.barCode?.trim() || undefined', 'body.barCode || undefined']],
    tests: [PRE_BOOKINGS_TEST],
    only: 'a barcode',
  },
  {
    name: 'an account may have the barcode of another',
    file: PRE_BOOKINGS,
    edits: [['barcodeHash(preBooking.barcode)', 'barcodeHash(preBooking.accountId + preBooking.barcode)']],
    tests: [PRE_BOOKINGS_TEST],
    only: 'a barcode',
  },
  {
    name: 'a pre-booking takes tests of another branch',
    file: PRE_BOOKINGS,
    edits: [["'i.lab_id': body.labID, 'i.active': true", "'i.active': true"]],
    tests: [PRE_BOOKINGS_TEST],
    only: 'with ids of another lab',
  },
  {
    name: 'an inactive branch takes pre-bookings',
    file: 'src/billing/pre-booking-handlers.ts',
    edits: [['if (!lab?.active) throw', 'if (!lab) throw']],
    tests: [PRE_BOOKINGS_TEST],
    only: 'a lab that is unknown, inactive',
  },
  {
    name: 'a code has six tries',
    file: OTP_RULES,
    edits: [['tries >= MAX_TRIES', 'tries > MAX_TRIES']],
    tests: [OTP_TEST],
  },
  {
    name: 'a code serves after its time',
    file: OTP_RULES,
    edits: [['code.expiresAt > now &&', 'code.expiresAt >= now &&']],
    tests: [OTP_TEST],
  },
  {
    name: 'the count of wrong tries begins anew after a lock',
    file: OTP_RULES,
    edits: [['return { failuresInRow, lockedUntil', 'return { failuresInRow: isOver ? 0 : failuresInRow, lockedUntil']],
    tests: [OTP_TEST],
  },
  {
    name: 'a refresh token that was used comes back and its family stays',
    file: TOKEN_RULES,
    edits: [["? 'refuse' : 'revoke'\n  return stored", "? 'refuse' : 'refuse'\n  return stored"]],
    tests: [TOKEN_TEST],
  },
  {
    name: 'a race of two refreshes ends the family',
    file: TOKEN_RULES,
    edits: [['ROTATION_RACE_MS = 10_000', 'ROTATION_RACE_MS = 0']],
    tests: [TOKEN_TEST],
  },
  {
    name: 'a message goes to its party’s webhook beside a catch-all one',
    file: ROUTING,
    edits: [
      ['OR NOT EXISTS (\n      SELECT 1 FROM webhook_events cs', 'OR EXISTS (\n      SELECT 1 FROM webhook_events cs'],
    ],
    tests: [ROUTING_TEST],
    only: 'a message > goes to',
  },
  {
    name: 'a webhook of a hospital gets nothing that a hospital has sent',
    file: ROUTING,
    edits: [[' OR w.organization_id = e.hospital_id)', ')']],
    tests: [ROUTING_TEST],
    only: 'a webhook of a party gets',
  },
  {
    name: 'a message that no webhook is for is sent by nobody',
    file: 'src/messages/messages-repository.ts',
    edits: [["SET state = 'normal', decided_at = ?", "SET state = 'expired', decided_at = ?"]],
    tests: ['test/messages/message-states.test.ts'],
  },
  {
    name: 'Retry-After lengthens a wait to three times itself',
    file: RETRIES,
    edits: [['RETRY_AFTER_FACTOR = 2', 'RETRY_AFTER_FACTOR = 3']],
    tests: [RETRY_TEST],
  },
  {
    name: 'Retry-After moves an attempt past the 24 hours',
    file: RETRIES,
    edits: [['waitMs * RETRY_AFTER_FACTOR, failed.untilVerdictMs)', 'waitMs * RETRY_AFTER_FACTOR)']],
    tests: [RETRY_TEST],
  },
  {
    name: 'a signature has the time in milliseconds',
    file: 'daemon/signed-delivery.ts',
    edits: [['Math.floor(at.getTime() / 1000)', 'at.getTime()']],
    tests: ['test/daemon/signed-delivery.test.ts'],
  },
  {
    name: 'an erased entry keeps its e-mail',
    file: ERASED,
    edits: [['    email: null,\n', '']],
    tests: [ERASURE_TEST],
    only: 'is in no table and no file',
  },
  {
    name: 'an erased bill keeps the contact',
    file: ERASED,
    edits: [['patient_name: ERASED_NAME, contact: null,', 'patient_name: ERASED_NAME,']],
    tests: [ERASURE_TEST],
    only: 'is in no table and no file',
  },
  {
    name: 'a patient sees the reports of every patient of the branch',
    file: 'src/patients/reports-repository.ts',
    edits: [["'p.account_id': accountId, 'p.contact': contact", "'p.account_id': accountId"]],
    tests: [REPORTS_TEST],
    only: 'has those of every patient',
  },
  {
    name: 'a patient sees a report that is not signed off',
    file: 'src/patients/reports-repository.ts',
    edits: [["'r.lab_id': labId, 'r.status': 'signed_off'", "'r.lab_id': labId"]],
    tests: [REPORTS_TEST],
    only: 'has those of every patient',
  },
]
