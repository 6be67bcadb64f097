/**
 * Rows of `daemons`. A beat that moves is the only sign of life; a token fences everything a daemon owns.
 */
import type { Knex } from 'knex'

/**
 * No answer in this time, in milliseconds, counts as a fault: one connection that is lost without a word must not keep a daemon
 * still until others take it for dead.
 */
const ANSWER_TIMEOUT_MS = 2000

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
    .timeout(ANSWER_TIMEOUT_MS)
  return changed === 1
}

export async function listDaemons(knex: Knex): Promise<DaemonRow[]> {
  const rows = await knex('daemons')
    .select('token', 'beat', 'hint_host', 'hint_port')
    .orderBy('token')
    .timeout(ANSWER_TIMEOUT_MS)
  return rows.map(toDaemon)
}

function toDaemon(row: Record<string, unknown>): DaemonRow {
  return {
    token: row.token as string,
    beat: row.beat as number,
    hintHost: row.hint_host as string,
    hintPort: row.hint_port as number,
  }
}

/**
 * Removes a daemon whose beat stands still and frees its lanes, in the caller's transaction. Guarded by the beat that was
 * seen: one that moved after all keeps everything.
 * @returns how many lanes it had; undefined: it was not removed
 */
export async function removeDaemon(trx: Knex.Transaction, token: string, beat: number): Promise<number | undefined> {
  const removed = await trx('daemons').where({ token, beat }).delete()
  return removed === 0 ? undefined : freeLanesOf(trx, token)
}

/**
 * Frees the lanes of a daemon that stops, so that another goes on without waiting for a silent beat, or that is no more.
 * @returns how many
 */
export async function retireDaemon(trx: Knex.Transaction, token: string): Promise<number> {
  await trx('daemons').where({ token }).delete()
  return freeLanesOf(trx, token)
}

async function freeLanesOf(trx: Knex.Transaction, token: string): Promise<number> {
  return trx('lanes').where({ owner: token }).update({ owner: null })
}

/**
 * All daemons, and owners of lanes that are no daemon any more: one that was taken for dead while it worked has taken some since its
 * lanes were freed, and does not know yet. In one statement, which sees both at one moment: a daemon has its row before it takes a
 * lane, so that an owner who has none has none any more. The lanes come first: were they read later, a
 * daemon that came between would look lost.
 * @param tokens of daemons that were there a moment ago: only what lies between them in the index of owners is read
 */
export async function findDaemons(
  knex: Knex,
  tokens: string[],
): Promise<{ daemons: DaemonRow[]; lostOwners: string[] }> {
  const [rows] = await knex
    .raw(
      `SELECT DISTINCT owner AS token, NULL AS beat, NULL AS hint_host, NULL AS hint_port
       FROM lanes FORCE INDEX (lanes_due) WHERE owner >= '' AND owner NOT IN (?)
       UNION ALL
       SELECT token, beat, hint_host, hint_port FROM daemons`,
      [tokens],
    )
    .timeout(ANSWER_TIMEOUT_MS)
  const found = rows as { token: string; beat: number | null }[]
  const daemons = found.flatMap((row) => (row.beat === null ? [] : [toDaemon(row)]))
  const there = new Set(daemons.map(({ token }) => token))
  return { daemons, lostOwners: found.flatMap(({ token }) => (there.has(token) ? [] : [token])) }
}
