/**
 * The minute's check of failing webhooks.
 */
import type { Knex } from 'knex'
import type { Database } from '../../db/connection.ts'
import { newId } from '../ids.ts'
import { insertMailStatement } from '../mails/mails-repository.ts'
import { judgeClock, type HealthLimits } from './webhook-health.ts'

const WEBHOOKS_AT_A_TIME = 100

/**
 * Warns about every webhook that has failed for so long without a warning. Each is judged again under its row's lock: an
 * attempt that is recorded at this moment comes before or after it, and either way one warning goes out.
 * @param onFault told of a webhook that could not be warned about, so that the others are; without it that is thrown
 * @returns the webhooks that were warned about
 */
export async function warnByClock(
  database: Database,
  now: Date,
  limits: HealthLimits,
  onFault = (_webhookId: string, error: unknown): void => {
    throw error
  },
): Promise<string[]> {
  const warned: string[] = []
  for (;;) {
    const ids = await listUnwarned(database, now, limits)
    const warnedBefore = warned.length
    for (const id of ids) {
      try {
        if (await database.transaction((trx) => warnOne(trx, id, now, limits))) warned.push(id)
      } catch (error) {
        onFault(id, error)
      }
    }
    // Who was warned is not listed again. A provider's outage can be the 23rd hour of hundreds at once.
    if (ids.length < WEBHOOKS_AT_A_TIME || warned.length === warnedBefore) return warned
  }
}

async function listUnwarned(database: Database, now: Date, limits: HealthLimits): Promise<string[]> {
  const failingSince = new Date(now.getTime() - limits.warnByClockSeconds * 1000)
  return database
    .knex('webhooks')
    .where({ state: 'active' })
    .where('first_failure_at', '<=', failingSince)
    .whereNull('warned_at')
    .orderBy('first_failure_at')
    .limit(WEBHOOKS_AT_A_TIME)
    .pluck('id')
}

async function warnOne(trx: Knex.Transaction, webhookId: string, now: Date, limits: HealthLimits): Promise<boolean> {
  const row = await trx('webhooks').where({ id: webhookId, state: 'active' }).forUpdate().first()
  if (!row) return false
  const { health, effects } = judgeClock(
    {
      firstFailureAt: row.first_failure_at,
      failedAttempts: row.failed_attempts,
      lastError: row.last_error,
      warnedAt: row.warned_at,
    },
    now,
    limits,
  )
  if (effects.length === 0) return false
  const mail = insertMailStatement(newId(now.getTime()), 'warning', webhookId, health, now)
  await trx.raw(mail.sql, mail.values as Knex.RawBinding[])
  await trx('webhooks').where({ id: webhookId }).update({ warned_at: health.warnedAt })
  return true
}
