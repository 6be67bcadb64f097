/**
 * What a recorder knows of the lanes that it wrote to last. Each batch of attempts moves a lane's number on, under its lock:
 * where the number is still the one that this recorder wrote, nobody else has recorded anything since, so the webhook is as
 * healthy as it was left. Only recording makes a webhook fail.
 */
import type { BatchResult, Statement } from '../../db/batch.ts'
import { HEALTHY } from '../webhooks/webhook-health.ts'
import type { AttemptResult, LaneRecord } from './recording-rules.ts'

/** Then all is learned anew: lanes that have ended would stay for ever. */
const MOST_LANES = 20_000
/** Above the attempts of a batch: the number known and how far it moves go as one value. */
const MOST_ATTEMPTS = 1000

interface KnownLane {
  token: string
  seq: number
  moves: number
  healthy: boolean
}

export class KnownLanes {
  readonly #lanes = new Map<string, KnownLane>()

  /**
   * The lanes of these results, if each is known as a healthy one that nothing but successes came of: recording them changes
   * nothing but the lanes' numbers.
   */
  healthyLanes(token: string, results: AttemptResult[]): Map<string, LaneRecord> | undefined {
    const lanes = new Map<string, LaneRecord>()
    if (results.length >= MOST_ATTEMPTS) return undefined
    for (const { webhookId, ok, epoch, queueMoves } of results) {
      const known = this.#lanes.get(webhookId)
      if (!ok || !known?.healthy || known.token !== token) return undefined
      // Read before the queue was last changed by somebody else, of which this recorder has heard since.
      if (queueMoves !== undefined && queueMoves !== known.moves) return undefined
      if (!lanes.has(webhookId))
        lanes.set(webhookId, { webhookId, state: 'active', epoch, health: HEALTHY, seq: known.seq, moves: known.moves })
    }
    return lanes
  }

  learn(token: string, lanes: Iterable<LaneRecord>): void {
    if (this.#lanes.size > MOST_LANES) this.#lanes.clear()
    for (const { webhookId, seq, moves, health } of lanes) {
      this.#lanes.set(webhookId, { token, seq, moves, healthy: health.firstFailureAt === null })
    }
  }

  forget(results: AttemptResult[]): void {
    for (const { webhookId } of results) this.#lanes.delete(webhookId)
  }
}

/**
 * Locks the lanes, in order of their ids, and moves their numbers on: of those alone that are this owner's and stand where they
 * are known to stand, with queues that nobody else has changed. One statement where locking, reading and writing would be three. A
 * value is the number known, a thousand times, and how far it moves.
 */
export function moveStatement(token: string, before: Map<string, LaneRecord>, results: AttemptResult[]): Statement {
  const moves = new Map<string, number>()
  for (const { webhookId } of results) moves.set(webhookId, (moves.get(webhookId) ?? 0) + 1)
  const rows = [...moves].sort(([a], [b]) => (a < b ? -1 : 1))
  return {
    sql: `INSERT INTO lanes (webhook_id, last_seq, queue_moves) VALUES ? ON DUPLICATE KEY UPDATE last_seq =
          IF(owner = ? AND last_seq = VALUES(last_seq) DIV ${MOST_ATTEMPTS} AND queue_moves = VALUES(queue_moves),
             last_seq + VALUES(last_seq) MOD ${MOST_ATTEMPTS}, last_seq)`,
    values: [rows.map(([id, by]) => [id, before.get(id)!.seq * MOST_ATTEMPTS + by, before.get(id)!.moves]), token],
  }
}

/** A row that is changed counts twice, one that stays or that was not there once. Then the caller must roll back. */
export function haveAllMoved(moved: BatchResult, lanes: Map<string, LaneRecord>): boolean {
  return moved.affectedRows === 2 * lanes.size
}
