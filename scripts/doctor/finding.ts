/**
 * What the doctor reports, and the shape of an examination.
 */
import type { Knex } from 'knex'
import type { HealthLimits } from '../../src/webhooks/webhook-health.ts'

export interface Finding {
  /** A stable word: `lane_not_due`. */
  check: string
  /** Ids of what it is about; the same fault found again has the same. */
  subject: string
  /** What is off, for a person. Never a patient's data. */
  sentence: string
}

export interface Examined {
  knex: Knex
  /** The database's UTC time. */
  now: Date
  limits: HealthLimits
  payloadRetentionDays: number
  logRetentionDays: number
  /** The longest that a registration takes to commit; 0 where none was under way while events were fanned out. */
  registrationSeconds?: number
}

/** Findings of one check that are reported; a broken invariant tends to be broken everywhere. */
export const MOST_OF_A_CHECK = 100

/** A check that one statement makes: each row that it finds is a finding. */
export interface SqlCheck {
  /** Of a statement that looks for several faults in one pass, what a row is. */
  check: string | ((row: Record<string, any>) => string)
  /** Without a LIMIT. Its first columns are ids. */
  sql: string
  values?: (examined: Examined) => unknown[]
  /** Columns that tell one finding from another. */
  subject: string[]
  sentence: (row: Record<string, any>) => string
}

export async function runSqlCheck(examined: Examined, check: SqlCheck): Promise<Finding[]> {
  const values = check.values?.(examined) ?? []
  const [rows] = await examined.knex.raw(`${check.sql} LIMIT ${MOST_OF_A_CHECK}`, values as Knex.RawBinding[])
  return (rows as Record<string, any>[]).map((row) => ({
    check: typeof check.check === 'string' ? check.check : check.check(row),
    subject: check.subject.map((column) => row[column]).join(' '),
    sentence: check.sentence(row),
  }))
}
