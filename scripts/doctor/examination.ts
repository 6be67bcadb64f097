/**
 * Recomputes what follows from other rows, and names where it differs.
 */
import { DELIVERY_CHECKS } from './delivery-checks.ts'
import { checkDayGuards } from './day-guard-check.ts'
import { EVENT_CHECKS } from './event-checks.ts'
import { runSqlCheck, type Examined, type Finding } from './finding.ts'
import { checkHealth } from './health-check.ts'
import { LANE_CHECKS } from './lane-checks.ts'
import { WEBHOOK_CHECKS } from './webhook-checks.ts'

type Check = (examined: Examined) => Promise<Finding[]>

const CHECKS: Check[] = [
  ...[...WEBHOOK_CHECKS, ...LANE_CHECKS, ...DELIVERY_CHECKS, ...EVENT_CHECKS].map(
    (check): Check =>
      (examined) =>
        runSqlCheck(examined, check),
  ),
  checkHealth,
  checkDayGuards,
]

/**
 * Looks twice: what was only on its way between two reads, in a service that goes on meanwhile, is gone the second time.
 * @param pauseMs between the two
 */
export async function examine(examined: Examined, pauseMs: number): Promise<{ checks: number; findings: Finding[] }> {
  const suspected: { check: Check; findings: Finding[] }[] = []
  for (const check of CHECKS) {
    const findings = await check(examined)
    if (findings.length > 0) suspected.push({ check, findings })
  }
  const confirmed: Finding[] = []
  if (suspected.length > 0) await new Promise((resolve) => setTimeout(resolve, pauseMs))
  for (const { check, findings } of suspected) {
    const again = new Set((await check(examined)).map(keyOf))
    confirmed.push(...findings.filter((finding) => again.has(keyOf(finding))))
  }
  return { checks: CHECKS.length, findings: confirmed }
}

const keyOf = ({ check, subject }: Finding) => `${check} ${subject}`
