import type { Knex } from 'knex'

/** The key of the last row that was looked at: rows that must stay are looked at once in a run, not in every batch. */
export type Position = readonly (string | Date | Buffer)[]

export interface Batch {
  /** Fewer than the limit: that was the last batch, unless it says that there is more. */
  looked: number
  more?: boolean
  removed: number
  position: Position | undefined
}

/** One kind of thing that is purged. */
export interface PurgeStep {
  name: string
  /**
   * Looks at up to `limit` rows behind the position and removes those that may go, in the caller's transaction. Rows that
   * somebody else has locked are left to the next run.
   */
  remove(trx: Knex.Transaction, after: Position | undefined, limit: number): Promise<Batch>
}
