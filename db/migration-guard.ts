/**
 * The row that lets one process migrate at a time: an owner, and a beat that the owner raises every second. Not GET_LOCK:
 * that is per node in a cluster, and knex's own lock stays for ever when its holder is killed.
 */
import type { Knex } from 'knex'
import { monotonicMs, processClock } from '../src/clock.ts'
import { newId } from '../src/ids.ts'
import { isRetriable } from './connection.ts'

/** Design, "ownership instead of leases": an owner whose beat stands still this long, on the observer's clock, is dead. */
const DEAD_AFTER_MS = 5000
const BEAT_EVERY_MS = 1000
const LOOK_EVERY_MS = 100
const MOST_TRIES = 20

export interface MigrationGuard {
  /** Raises the beat. @throws when another process has taken over: this one must not write any more */
  prove(): Promise<void>
  release(): Promise<void>
}

/**
 * Waits until the guard is free or its owner is dead.
 * @param deadAfterMs how long a beat must stand still; for tests only
 */
export async function takeMigrationGuard(
  knex: Knex,
  onProgress: (line: string) => void,
  deadAfterMs = DEAD_AFTER_MS,
): Promise<MigrationGuard> {
  await makeSureOfGuard(knex)
  const me = newId(processClock.nowMs())
  await waitForTurn(knex, me, onProgress, deadAfterMs)

  const beat = async (): Promise<boolean> => {
    const [result] = await knex.raw('UPDATE migration_guard SET beat = beat + 1 WHERE id = 1 AND owner = ?', [me])
    return result.affectedRows === 1
  }
  // A beat that fails is made up for by the next: only five in a row make us dead.
  const timer = setInterval(() => void beat().catch(() => {}), BEAT_EVERY_MS)
  return {
    prove: async () => {
      if (!(await beat()))
        throw new Error('another process has taken over the migrations: this one was silent too long')
    },
    release: async () => {
      clearInterval(timer)
      // When this fails the next starter waits until the beat has stood still long enough: nothing is lost but time.
      await knex.raw('UPDATE migration_guard SET owner = NULL WHERE id = 1 AND owner = ?', [me]).catch(() => {})
    },
  }
}

/**
 * May run again, and in many processes at once: in a cluster each of them may be rolled back for another one's CREATE TABLE. Exported
 * for its test.
 */
export async function makeSureOfGuard(knex: Knex): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      await knex.raw(`
        CREATE TABLE IF NOT EXISTS migration_guard (
          id TINYINT UNSIGNED NOT NULL PRIMARY KEY,
          owner CHAR(26) CHARACTER SET ascii COLLATE ascii_bin NULL,
          beat BIGINT UNSIGNED NOT NULL DEFAULT 0
        ) ENGINE=InnoDB`)
      await knex.raw('INSERT IGNORE INTO migration_guard (id) VALUES (1)')
      return
    } catch (error) {
      if (!isRetriable(error) || tries === MOST_TRIES) throw error
      await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS * Math.random()))
    }
  }
}

/** @returns whether it is ours; another one may have been quicker */
async function takeOver(knex: Knex, me: string, row: { owner: string | null; beat: number }): Promise<boolean> {
  try {
    // Guarded by what was read: of several that see the same dead owner one wins.
    const [result] = await knex.raw(
      'UPDATE migration_guard SET owner = ?, beat = beat + 1 WHERE id = 1 AND owner <=> ? AND beat = ?',
      [me, row.owner, row.beat],
    )
    return result.affectedRows === 1
  } catch (error) {
    if (isRetriable(error)) return false
    throw error
  }
}

async function waitForTurn(
  knex: Knex,
  me: string,
  onProgress: (line: string) => void,
  deadAfterMs: number,
): Promise<void> {
  let seen: { owner: string | null; beat: number; at: number } | undefined
  let said = false
  for (;;) {
    const row = await knex('migration_guard').where({ id: 1 }).first('owner', 'beat')
    const now = monotonicMs()
    if (!seen || seen.owner !== row.owner || seen.beat !== row.beat)
      seen = { owner: row.owner, beat: row.beat, at: now }
    if (row.owner === null || now - seen.at >= deadAfterMs) {
      if (await takeOver(knex, me, row)) {
        if (row.owner !== null) onProgress('the process that was migrating is dead: taking over')
        return
      }
      seen = undefined
    }
    if (!said) {
      said = true
      onProgress('another process is migrating: waiting for it …')
    }
    await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS))
  }
}
