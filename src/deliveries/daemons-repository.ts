/**
 * Rows of `daemons`. A beat that moves is the only sign of life; a token fences everything a daemon owns.
 */
import type { Knex } from 'knex'

export interface DaemonRow {
  token: string
  beat: number
  hintHost: string
  hintPort: number
}

export async function insertDaemon(knex: Knex, daemon: Omit<DaemonRow, 'beat'>, now: Date): Promise<void> {
  await knex('daemons').insert({
    token: daemon.token,
    beat: 0,
    hint_host: daemon.hintHost,
    hint_port: daemon.hintPort,
    started_at: now,
  })
}

/** @returns false when the row is gone: another daemon took this one for dead, and its lanes are free */
export async function raiseBeat(knex: Knex, token: string): Promise<boolean> {
  const changed: number = await knex('daemons')
    .where({ token })
    .update({ beat: knex.raw('beat + 1') })
  return changed === 1
}

export async function listDaemons(knex: Knex): Promise<DaemonRow[]> {
  const rows = await knex('daemons').select('token', 'beat', 'hint_host', 'hint_port').orderBy('token')
  return rows.map((row) => ({ token: row.token, beat: row.beat, hintHost: row.hint_host, hintPort: row.hint_port }))
}

/**
 * Removes a daemon whose beat stands still and frees its lanes, in the caller's transaction. Guarded by the beat that was
 * seen: one that moved after all keeps everything.
 * @returns whether it was removed
 */
export async function removeDaemon(trx: Knex.Transaction, token: string, beat: number): Promise<boolean> {
  const removed = await trx('daemons').where({ token, beat }).delete()
  if (removed === 0) return false
  await trx('lanes').where({ owner: token }).update({ owner: null })
  return true
}

/** A graceful stop: frees the lanes at once, so that another daemon goes on without waiting for a silent beat. */
export async function retireDaemon(trx: Knex.Transaction, token: string): Promise<void> {
  await trx('daemons').where({ token }).delete()
  await trx('lanes').where({ owner: token }).update({ owner: null })
}
