/**
 * What the database's own clock has written down in a simulation, said in simulated time: the doctor's look at the end sets it
 * against attempts, which are of that time. On the server's clock the one would lie before the other or behind it by the date.
 */
import type { Knex } from 'knex'
import type { Entry } from './life-judge.ts'

export interface SimulatedTimes {
  id: string
  createdAtMs: number
  entries: Entry[]
}

/** @param events the number by which entries name an event, by its id */
export async function tellInSimulatedTime(
  knex: Knex,
  webhooks: SimulatedTimes[],
  events: Map<string, number>,
): Promise<void> {
  const recordedAt = new Map<number, Date>()
  for (const { id, createdAtMs, entries } of webhooks) {
    const begins = [new Date(createdAtMs)]
    let deletedAt: Date | null = null
    for (const entry of entries) {
      if (entry.kind === 'event') recordedAt.set(entry.event, new Date(entry.atMs))
      if (entry.kind === 'reactivated') begins.push(new Date(entry.atMs))
      if (entry.kind === 'deleted') deletedAt = new Date(entry.atMs)
    }
    // As text: a date of this process has no microseconds.
    const away = await knex('webhook_inactivity')
      .where('webhook_id', id)
      .orderBy('inactive_from')
      .select('deactivated_at', { from: knex.raw('CAST(inactive_from AS CHAR)') })
    if (away.length !== begins.length - 1) {
      throw new Error(`I15: ${away.length} times away, ${begins.length - 1} reactivations`)
    }
    for (const [n, { from, deactivated_at: goneAt }] of away.entries()) {
      const changed = await knex('webhook_inactivity')
        .where({ webhook_id: id, inactive_from: from })
        .update({ inactive_from: goneAt, active_from: begins[n + 1] })
      if (changed !== 1) throw new Error(`the time away from ${from} of ${id} is not found again`)
    }
    await knex('webhooks')
      .where({ id })
      .update({
        active_from: begins.at(-1),
        inactive_from: knex.raw(`IF(state = 'active', NULL, COALESCE(deactivated_at, ?))`, [deletedAt]),
      })
  }
  await knex.transaction(async (trx) => {
    for (const [id, n] of events)
      await trx('events')
        .where({ id })
        .update({ recorded_at: recordedAt.get(n)! })
  })
}
