/**
 * What every suite ends with: the doctor looks at the database that it has used, and finds nothing but what is known of it.
 */
import { join, relative } from 'node:path'
import { expect } from 'vitest'
import type { Database } from '../../db/connection.ts'
import { examine } from '../../scripts/doctor/examination.ts'
import type { Finding } from '../../scripts/doctor/finding.ts'
import { LEFT_BEHIND, TOO_LARGE } from './left-behind.ts'

/** Those of the service itself. */
const LIMITS = {
  warnAfterSeconds: 43_200,
  warnByClockSeconds: 82_800,
  deleteAfterSeconds: 86_400,
  minWarningLeadSeconds: 0,
}
const RETENTION = { payloadRetentionDays: 30, logRetentionDays: 90 }
/** Whatever was on its way when the suite ended has arrived by then. */
const SECOND_LOOK_MS = 500

/** @throws with what is off in the database, and not among what the suite is known to leave behind */
export async function requireSound(database: Database): Promise<void> {
  const file = relative(join(import.meta.dirname, '..'), String(expect.getState().testPath))
  if (TOO_LARGE.includes(file)) return
  const known = new Set(LEFT_BEHIND.filter(({ files }) => files.includes(file)).flatMap(({ checks }) => checks))
  const look = async () => {
    const now = new Date(await database.readTimeMs())
    const { findings } = await examine(
      { knex: database.knex, now, limits: LIMITS, ...RETENTION, registrationSeconds: 0 },
      0,
    )
    return findings.filter(({ check }) => !known.has(check))
  }
  // A pause for the few that need one: most databases are sound at the first look.
  let findings = await look()
  if (findings.length > 0) {
    await new Promise((resolve) => setTimeout(resolve, SECOND_LOOK_MS))
    const again = new Set((await look()).map(keyOf))
    findings = findings.filter((finding) => again.has(keyOf(finding)))
  }
  if (findings.length === 0) return
  const sentences = findings.map(({ check, sentence }) => `${check}: ${sentence}`)
  throw new Error(`the doctor finds in what ${file} has left:\n${[...new Set(sentences)].slice(0, 10).join('\n')}`)
}

const keyOf = ({ check, subject }: Finding) => `${check} ${subject}`
