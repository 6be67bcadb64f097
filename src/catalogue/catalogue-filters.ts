/**
 * What the operator's lists of the catalogue can be narrowed to.
 */
import type { Knex } from 'knex'

export interface CatalogueFilter {
  /** What the name begins with, in upper or lower case. */
  name?: string | undefined
  /** What the code begins with, in upper or lower case. */
  code?: string | undefined
  active?: boolean | undefined
}

/** A page of what was not removed, the oldest first. */
export function withinPage(
  query: Knex.QueryBuilder,
  filter: CatalogueFilter,
  afterId: string | undefined,
  limit: number,
): void {
  query.whereNull('removed_at').orderBy('id').limit(limit)
  if (filter.name !== undefined) query.modify(whereBeginsWith, 'name', filter.name)
  if (filter.code !== undefined) query.modify(whereBeginsWith, 'code', filter.code)
  if (filter.active !== undefined) query.where({ active: filter.active })
  if (afterId !== undefined) query.where('id', '>', afterId)
}

/** Both sides in lower case, because the columns compare by bytes; what LIKE takes for a pattern is meant as it is. */
export function whereBeginsWith(query: Knex.QueryBuilder, column: string, start: string): void {
  const pattern = `${start.replace(/[\\%_]/g, '\\$&')}%`
  query.whereRaw('LOWER(??) LIKE LOWER(?)', [column, pattern])
}

/** A parameter of the query as it was sent: the contract has made sure that it is one of the two words. */
export function toFlag(sent: boolean | string | undefined): boolean | undefined {
  return sent === undefined ? undefined : String(sent) === 'true'
}
