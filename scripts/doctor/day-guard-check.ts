/**
 * The rows that keep out a second entry of a day: each entry has its own, and none is left of one that is not there.
 */
import type { Knex } from 'knex'
import { dayGuardsOf } from '../../src/crm/entry-rules.ts'
import { firstIdOf } from '../../src/ids.ts'
import { cutoffsOf } from '../../src/retention/retention-rules.ts'
import { MOST_OF_A_CHECK, type Examined, type Finding } from './finding.ts'

const ENTRIES_AT_A_TIME = 500
const DAY_MS = 86_400_000

export async function checkDayGuards(examined: Examined): Promise<Finding[]> {
  const { guardDay } = cutoffsOf(examined.now, examined)
  return [...(await findEntriesWithoutGuard(examined, guardDay)), ...(await findGuardsWithoutEntry(examined.knex))]
}

/** Of the days whose guards are certainly kept. */
async function findEntriesWithoutGuard({ knex }: Examined, guardDay: string): Promise<Finding[]> {
  const findings: Finding[] = []
  // An account's day is the one before that in UTC at the earliest.
  let after = firstIdOf(Date.parse(guardDay) + DAY_MS)
  for (;;) {
    const entries = await knex('entries as e')
      .join('accounts as a', 'a.id', 'e.account_id')
      .where('e.id', '>', after)
      .orderBy('e.id')
      .limit(ENTRIES_AT_A_TIME)
      .select('e.id', 'e.account_id', 'e.contact', 'e.email', 'e.created_at', 'a.time_zone')
    const last = entries.at(-1)
    if (!last) return findings
    const kept = await listGuards(knex, entries)
    for (const entry of entries) {
      const made = { contact: entry.contact, email: entry.email, createdAt: entry.created_at }
      for (const { kind, valueHash } of dayGuardsOf(made as Parameters<typeof dayGuardsOf>[0], entry.time_zone)) {
        if (kept.has(`${entry.id} ${kind} ${valueHash.toString('hex')}`)) continue
        const sentence = `entry ${entry.id} does not keep its day’s place for its ${kind}: a second one could come in`
        findings.push({ check: 'day_guard_missing', subject: `${entry.id} ${kind}`, sentence })
      }
      if (findings.length >= MOST_OF_A_CHECK) return findings
    }
    after = last.id
  }
}

/** The day itself is left out: an account's time zone may have been changed since. */
async function listGuards(knex: Knex, entries: { id: string; account_id: string; created_at: Date }[]) {
  const times = entries.map((entry) => entry.created_at.getTime())
  const rows = await knex('entry_day_guards')
    .whereIn(
      'account_id',
      entries.map((entry) => entry.account_id),
    )
    .where('day', '>=', dayOf(Math.min(...times) - DAY_MS))
    .where('day', '<=', dayOf(Math.max(...times) + DAY_MS))
    .select('entry_id', 'kind', 'value_hash')
  return new Set(rows.map((row) => `${row.entry_id} ${row.kind} ${row.value_hash.toString('hex')}`))
}

const dayOf = (timeMs: number) => new Date(timeMs).toISOString().slice(0, 10)

async function findGuardsWithoutEntry(knex: Knex): Promise<Finding[]> {
  const [rows] = await knex.raw(
    `SELECT g.entry_id, g.kind FROM entry_day_guards g
     LEFT JOIN entries e ON e.id = g.entry_id AND e.account_id = g.account_id WHERE e.id IS NULL LIMIT ?`,
    [MOST_OF_A_CHECK],
  )
  return (rows as { entry_id: string; kind: string }[]).map(({ entry_id, kind }) => ({
    check: 'day_guard_left_over',
    subject: `${entry_id} ${kind}`,
    sentence: `a day’s place for a ${kind} is kept by ${entry_id}, which is no entry: it keeps others out`,
  }))
}
