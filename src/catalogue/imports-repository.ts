/**
 * Imports and their rows. Rows are there while an import is open; what they become is `import-commit-repository.ts`.
 */
import type { Knex } from 'knex'
import { isIdShaped, newId } from '../ids.ts'
import type { ImportKind, ImportRow, ImportState } from './import-rules.ts'

/** Rows of one import, for statements over the whole set: by its part of the primary key. */
export const ROWS = 'catalogue_import_rows r FORCE INDEX (PRIMARY)'

export interface CatalogueImport {
  id: string
  accountId: string
  labId: string
  kind: ImportKind
  state: ImportState
  rows: number
  /** As of the last validation; null: rows have come since, or there was none. */
  refused: number | null
  created: number | null
  updated: number | null
  createdAt: Date
  endedAt: Date | null
}

export type ImportCounts = Pick<CatalogueImport, 'refused' | 'created' | 'updated'>

const ROW_TABLES = ['catalogue_import_rows', 'catalogue_import_contents']

export async function insertImport(
  trx: Knex.Transaction,
  begun: Pick<CatalogueImport, 'id' | 'accountId' | 'labId' | 'kind' | 'createdAt'>,
): Promise<void> {
  await trx('catalogue_imports').insert({
    id: begun.id,
    account_id: begun.accountId,
    lab_id: begun.labId,
    kind: begun.kind,
    state: 'open',
    created_at: begun.createdAt,
  })
}

export async function findImport(
  knex: Knex,
  lab: { accountId: string; id: string },
  importId: string,
): Promise<CatalogueImport | undefined> {
  if (!isIdShaped(importId)) return undefined
  const row = await knex('catalogue_imports').where({ id: importId, account_id: lab.accountId, lab_id: lab.id }).first()
  return row && toImport(row, row.row_count ?? (await countRows(knex, importId)))
}

/** Locks the import: what changes it comes one after the other. */
export async function claimImport(
  trx: Knex.Transaction,
  lab: { accountId: string; id: string },
  importId: string,
): Promise<CatalogueImport | undefined> {
  if (!isIdShaped(importId)) return undefined
  const scope = { id: importId, account_id: lab.accountId, lab_id: lab.id }
  await trx('catalogue_imports').where(scope).forUpdate().first('id')
  return findImport(trx, lab, importId)
}

/** A line that is there already is replaced. What was counted before counts no more. */
export async function addImportRows(
  trx: Knex.Transaction,
  importId: string,
  rows: ImportRow[],
  nowMs: number,
): Promise<void> {
  const lines = rows.map(({ line }) => line)
  for (const table of ROW_TABLES) await trx(table).where({ import_id: importId }).whereIn('line', lines).delete()
  await trx('catalogue_import_rows').insert(
    rows.map((row) => ({
      import_id: importId,
      line: row.line,
      new_id: newId(nowMs),
      item_kind: row.itemKind,
      code: row.code,
      name: row.name,
      price: row.price,
      service_id: row.serviceId,
      sets_service_id: row.setsServiceId,
      party_id: row.partyId,
      rate_list_type: row.rateListType,
      fault: row.fault,
    })),
  )
  const contents = rows.flatMap(({ line, testCodes }) =>
    testCodes.map((code, position) => ({ import_id: importId, line, position, test_code: code })),
  )
  if (contents.length > 0) await trx('catalogue_import_contents').insert(contents)
  await recordCounts(trx, importId, { refused: null, created: null, updated: null })
}

export async function recordCounts(trx: Knex.Transaction, importId: string, counts: ImportCounts): Promise<void> {
  const { refused, created, updated } = counts
  await trx('catalogue_imports').where({ id: importId }).update({ refused, created, updated })
}

/** Its rows go. */
export async function recordImportEnded(
  trx: Knex.Transaction,
  { id, rows }: CatalogueImport,
  state: 'committed' | 'discarded',
  now: Date,
): Promise<void> {
  await trx('catalogue_imports').where({ id }).update({ state, row_count: rows, ended_at: now })
  for (const table of ROW_TABLES) await trx(table).where({ import_id: id }).delete()
}

/** By line, after a line. */
export async function listRefusals(
  knex: Knex,
  importId: string,
  afterLine: number,
  limit: number,
): Promise<{ line: number; fault: string }[]> {
  return knex('catalogue_import_rows')
    .where({ import_id: importId })
    .where('line', '>', afterLine)
    .whereRaw('COALESCE(fault, clash) IS NOT NULL')
    .orderBy('line')
    .limit(limit)
    .select('line', { fault: knex.raw('COALESCE(fault, clash)') })
}

/** Open imports of the lab that nobody has ended for so long that nobody will; not those that are being worked on. */
export async function claimAbandonedImports(
  trx: Knex.Transaction,
  lab: { accountId: string; id: string },
  begunBefore: Date,
  limit: number,
): Promise<CatalogueImport[]> {
  const rows = await trx('catalogue_imports')
    .where({ account_id: lab.accountId, lab_id: lab.id, state: 'open' })
    .where('created_at', '<', begunBefore)
    .orderBy('id')
    .limit(limit)
    .forUpdate()
    .skipLocked()
  return Promise.all(rows.map(async (row) => toImport(row, await countRows(trx, row.id))))
}

/** How many of these lines are there already. Call under the import's lock. */
export async function countLines(trx: Knex.Transaction, importId: string, lines: number[]): Promise<number> {
  const found = await trx('catalogue_import_rows').where({ import_id: importId }).whereIn('line', lines).pluck('line')
  return found.length
}

/** The tests of all its packages. */
export async function countContents(trx: Knex.Transaction, importId: string): Promise<number> {
  const row = await trx('catalogue_import_contents').where({ import_id: importId }).count({ contents: '*' }).first()
  return Number(row!.contents)
}

async function countRows(knex: Knex, importId: string): Promise<number> {
  const row = await knex('catalogue_import_rows').where({ import_id: importId }).count({ rows: '*' }).first()
  return Number(row!.rows)
}

function toImport(row: Record<string, any>, rows: number): CatalogueImport {
  return {
    id: row.id,
    accountId: row.account_id,
    labId: row.lab_id,
    kind: row.kind,
    state: row.state,
    rows,
    refused: row.refused,
    created: row.created,
    updated: row.updated,
    createdAt: row.created_at,
    endedAt: row.ended_at,
  }
}
