/**
 * Imports of many tests, packages or prices: begun, filled call by call, validated, and committed as a whole. Until the commit
 * nothing counts, and every call can be repeated: a crash leaves an open import and an unchanged catalogue.
 */
import type { Knex } from 'knex'
import { requireLabOf, requireRole } from '../auth/operator-rules.ts'
import { conflict, notFound, type DomainError } from '../errors.ts'
import { newId } from '../ids.ts'
import { inKeyedTransaction } from '../idempotency/idempotency.ts'
import type { HandlerDeps, OperatorHandler } from '../handlers.ts'
import { cutPage, invalidCursor, pageOf, type SortKey } from '../paging.ts'
import { commitRows } from './import-commit-repository.ts'
import { MAX_IMPORT_CONTENTS, MAX_IMPORT_ROWS, readRow } from './import-rules.ts'
import { validateRows } from './import-validation-repository.ts'
import {
  addImportRows,
  claimAbandonedImports,
  claimImport,
  countContents,
  countLines,
  findImport,
  insertImport,
  listRefusals,
  recordCounts,
  recordImportEnded,
  type CatalogueImport,
} from './imports-repository.ts'
import { claimCatalogue, findLabOfAnyAccount, type Lab } from './labs-repository.ts'

/** A day: nobody works on one file for so long. */
const ABANDONED_AFTER_MS = 24 * 60 * 60 * 1000
/** Dropped by one call; their rows are many. */
const ABANDONED_AT_A_TIME = 2

interface ImportHandlers {
  createImport: OperatorHandler<'createImport'>
  getImport: OperatorHandler<'getImport'>
  addImportRows: OperatorHandler<'addImportRows'>
  validateImport: OperatorHandler<'validateImport'>
  listImportRefusals: OperatorHandler<'listImportRefusals'>
  commitImport: OperatorHandler<'commitImport'>
  discardImport: OperatorHandler<'discardImport'>
}

export function importHandlers({ database, clock }: HandlerDeps): ImportHandlers {
  const { knex } = database
  return {
    async createImport({ path, body, operator, audit, idempotency }) {
      requireRole(operator, 'admin')
      const lab = requireLabOf(operator, await findLabOfAnyAccount(knex, path.labID))
      const id = newId(clock.nowMs())
      return inKeyedTransaction(database, idempotency, async (trx) => {
        const now = clock.now()
        const before = new Date(now.getTime() - ABANDONED_AFTER_MS)
        for (const abandoned of await claimAbandonedImports(trx, lab, before, ABANDONED_AT_A_TIME)) {
          await recordImportEnded(trx, abandoned, 'discarded', now)
        }
        await insertImport(trx, { id, accountId: lab.accountId, labId: lab.id, kind: body.kind, createdAt: now })
        await audit.record(trx, lab.accountId, { labID: lab.id, importId: id })
        const begun = await getImportOf(trx, lab, id)
        return { status: 201, body: toImportRow(begun) }
      })
    },

    async getImport({ path, operator }) {
      requireRole(operator, 'admin')
      const lab = requireLabOf(operator, await findLabOfAnyAccount(knex, path.labID))
      return { status: 200, body: toImportRow(await getImportOf(knex, lab, path.importId)) }
    },

    async addImportRows({ path, body, operator, audit }) {
      requireRole(operator, 'admin')
      const lab = requireLabOf(operator, await findLabOfAnyAccount(knex, path.labID))
      const filled = await database.transaction(async (trx) => {
        const begun = await claimOpenImport(trx, lab, path.importId)
        // Of a line that is there twice the last one counts, like in two calls.
        const byLine = new Map(body.rows.map((row) => [row.line, readRow(begun.kind, row)]))
        // A call that is repeated replaces its own lines, also those that fill the import.
        const replaced = await countLines(trx, begun.id, [...byLine.keys()])
        if (begun.rows - replaced + byLine.size > MAX_IMPORT_ROWS) throw tooLarge(`${MAX_IMPORT_ROWS} rows`)
        await addImportRows(trx, begun.id, [...byLine.values()], clock.nowMs())
        if (begun.kind === 'packages' && (await countContents(trx, begun.id)) > MAX_IMPORT_CONTENTS) {
          throw tooLarge(`${MAX_IMPORT_CONTENTS} tests in all its packages`)
        }
        await audit.record(trx, lab.accountId, { labID: lab.id, importId: begun.id })
        return getImportOf(trx, lab, begun.id)
      })
      return { status: 200, body: toImportRow(filled) }
    },

    async validateImport({ path, operator, audit }) {
      requireRole(operator, 'admin')
      const lab = requireLabOf(operator, await findLabOfAnyAccount(knex, path.labID))
      const validated = await database.transaction(async (trx) => {
        const begun = await claimOpenImport(trx, lab, path.importId)
        const counts = await validateRows(trx, begun)
        await recordCounts(trx, begun.id, counts)
        await audit.record(trx, lab.accountId, { labID: lab.id, importId: begun.id })
        return { ...begun, ...counts }
      })
      return { status: 200, body: toImportRow(validated) }
    },

    async listImportRefusals({ path, query, operator }) {
      requireRole(operator, 'admin')
      const { limit, after } = pageOf(query)
      const afterLine = lineOf(after)
      const lab = requireLabOf(operator, await findLabOfAnyAccount(knex, path.labID))
      const { id } = await getImportOf(knex, lab, path.importId)
      const rows = await listRefusals(knex, id, afterLine, limit + 1)
      const { shown, nextCursor } = cutPage(rows, limit, ({ line }) => [String(line)])
      return { status: 200, body: { refusals: shown, nextCursor } }
    },

    async commitImport({ path, body, operator, audit }) {
      requireRole(operator, 'admin')
      const lab = requireLabOf(operator, await findLabOfAnyAccount(knex, path.labID))
      const committed = await database.transaction(async (trx) => {
        await claimCatalogue(trx, lab)
        const begun = await claimImport(trx, lab, path.importId)
        if (!begun) throw notFound('import not found')
        if (begun.state === 'discarded') throw ended(begun)
        if (begun.rows !== body.rows) throw incomplete(begun.rows, body.rows)
        // The answer to the call that committed it may have been lost: its repeat gets the same.
        if (begun.state === 'committed') return begun
        const validated = { ...begun, ...(await validateRows(trx, begun)) }
        await recordCounts(trx, begun.id, validated)
        // Kept, so that the refusals can be listed; the catalogue is untouched.
        if (validated.refused) return validated
        const now = clock.now()
        if (!(await commitRows(trx, validated, now))) throw changedMeanwhile()
        await recordImportEnded(trx, validated, 'committed', now)
        await audit.record(trx, lab.accountId, { labID: lab.id, importId: begun.id })
        return getImportOf(trx, lab, begun.id)
      })
      if (committed.state !== 'committed') throw refused(committed.refused ?? 0)
      return { status: 200, body: toImportRow(committed) }
    },

    async discardImport({ path, operator, audit }) {
      requireRole(operator, 'admin')
      const lab = requireLabOf(operator, await findLabOfAnyAccount(knex, path.labID))
      const discarded = await database.transaction(async (trx) => {
        const begun = await claimImport(trx, lab, path.importId)
        if (!begun) throw notFound('import not found')
        if (begun.state === 'committed') throw ended(begun)
        if (begun.state === 'discarded') return begun
        await recordImportEnded(trx, begun, 'discarded', clock.now())
        await audit.record(trx, lab.accountId, { labID: lab.id, importId: begun.id })
        return getImportOf(trx, lab, begun.id)
      })
      return { status: 200, body: toImportRow(discarded) }
    },
  }
}

async function getImportOf(knex: Knex, lab: Lab, importId: string): Promise<CatalogueImport> {
  const found = await findImport(knex, lab, importId)
  if (!found) throw notFound('import not found')
  return found
}

async function claimOpenImport(trx: Knex.Transaction, lab: Lab, importId: string): Promise<CatalogueImport> {
  const begun = await claimImport(trx, lab, importId)
  if (!begun) throw notFound('import not found')
  if (begun.state !== 'open') throw ended(begun)
  return begun
}

function ended({ state }: CatalogueImport): DomainError {
  return conflict(`the import is ${state}: begin another one`, 'invalid_state')
}

function incomplete(arrived: number, expected: number): DomainError {
  const remedy = arrived < expected ? 'send the others first' : 'begin another one'
  return conflict(`${arrived} of ${expected} rows have arrived: ${remedy}`, 'import_incomplete')
}

/** @throws 400 for a cursor that is none of this list */
function lineOf(after: SortKey | undefined): number {
  if (after === undefined) return 0
  const [line] = after
  if (!/^[1-9]\d{0,7}$/.test(line!)) throw invalidCursor()
  return Number(line)
}

function refused(rows: number): DomainError {
  const subject = rows === 1 ? '1 row is' : `${rows} rows are`
  return conflict(`${subject} refused: see the refusals of the import`, 'import_refused')
}

function changedMeanwhile(): DomainError {
  return conflict('the catalogue was changed meanwhile: commit again', 'catalogue_changed')
}

function tooLarge(most: string): DomainError {
  return conflict(`an import takes at most ${most}: begin another one for the rest`, 'import_too_large')
}

function toImportRow(row: CatalogueImport) {
  const { id, labId, kind, state, rows, refused: refusedRows, created, updated, createdAt, endedAt } = row
  return {
    importId: id,
    labID: labId,
    kind,
    state,
    rows,
    refused: refusedRows,
    created,
    updated,
    createdAt: createdAt.toISOString(),
    endedAt: endedAt?.toISOString() ?? null,
  }
}
