/**
 * An import's rows judged beside each other and the catalogue, as SQL over the whole set: 20,000 rows are a few statements.
 * A row keeps its first clash; one that is at fault by itself is judged no further.
 *
 * The order of tables and their keys are said. An import is validated a moment after it was filled, when the server's statistics are
 * often from before: both servers have then read all rows of the import for each of them. By LEFT JOIN the order is said as well.
 */
import type { Knex } from 'knex'
import { ROWS, type CatalogueImport, type ImportCounts } from './imports-repository.ts'

type Statement = [sql: string, values: unknown[]]

/** Marks every row with its clash and what it would change. The caller holds the import's lock. */
export async function validateRows(trx: Knex.Transaction, begun: CatalogueImport): Promise<ImportCounts> {
  const { id } = begun
  const statements: Statement[] = [
    ['UPDATE catalogue_import_rows SET clash = NULL WHERE import_id = ? AND clash IS NOT NULL', [id]],
    repeatedItems(id),
    ...foundItems(begun),
    ...STATEMENTS_OF_KIND[begun.kind](begun),
  ]
  for (const [sql, values] of statements) await trx.raw(sql, values as Knex.RawBinding[])
  const row = await trx('catalogue_import_rows')
    .where({ import_id: id })
    .first(
      trx.raw('COALESCE(SUM(COALESCE(fault, clash) IS NOT NULL), 0) AS refused'),
      trx.raw('COALESCE(SUM(COALESCE(fault, clash) IS NULL AND NOT is_update), 0) AS created'),
      trx.raw('COALESCE(SUM(COALESCE(fault, clash) IS NULL AND is_update), 0) AS updated'),
    )
  return { refused: Number(row.refused), created: Number(row.created), updated: Number(row.updated) }
}

const SOUND = 'r.import_id = ? AND r.fault IS NULL AND r.clash IS NULL'

const STATEMENTS_OF_KIND: Record<CatalogueImport['kind'], (begun: CatalogueImport) => Statement[]> = {
  tests: (begun) => [repeatedServiceIds(begun.id), takenServiceIds(begun)],
  packages: (begun) => [unknownContents(begun)],
  party_prices: (begun) => [
    [
      `UPDATE ${ROWS} LEFT JOIN parties p FORCE INDEX (PRIMARY) ON p.id = r.party_id AND p.account_id = ?
       SET r.clash = CONCAT('unknown party ', r.party_id) WHERE ${SOUND} AND p.id IS NULL`,
      [begun.accountId, begun.id],
    ],
    unknownItems(begun.id),
    [
      `UPDATE ${ROWS}
       LEFT JOIN party_test_prices t FORCE INDEX (PRIMARY)
         ON r.item_kind = 'test' AND t.party_id = r.party_id AND t.test_id = r.target_id
       LEFT JOIN party_package_prices p FORCE INDEX (PRIMARY)
         ON r.item_kind = 'package' AND p.party_id = r.party_id AND p.package_id = r.target_id
       SET r.is_update = t.party_id IS NOT NULL OR p.party_id IS NOT NULL WHERE r.import_id = ?`,
      [begun.id],
    ],
  ],
  rate_list_prices: (begun) => [
    [
      // By DISTINCT the values are read once, and looked up by a key that the server makes.
      `UPDATE ${ROWS}
       LEFT JOIN (SELECT DISTINCT value FROM operator_lists WHERE account_id = ? AND list = 'rate_list_type') l
         ON l.value = r.rate_list_type
       SET r.clash = CONCAT('unknown rate list ', r.rate_list_type) WHERE ${SOUND} AND l.value IS NULL`,
      [begun.accountId, begun.id],
    ],
    unknownItems(begun.id),
    [
      `UPDATE ${ROWS}
       LEFT JOIN rate_list_prices p FORCE INDEX (PRIMARY)
         ON p.account_id = ? AND p.rate_list_type = r.rate_list_type AND p.item_id = r.target_id
       SET r.is_update = p.item_id IS NOT NULL WHERE r.import_id = ?`,
      [begun.accountId, begun.id],
    ],
  ],
}

/**
 * Lines behind the first one that has the same values. Found by a window, not by a join of groups with their rows: where much is
 * repeated such a join reads all rows for each group, and no key has all the values.
 */
function repeated(importId: string, values: string, clash: string, isAsked = 'TRUE'): Statement {
  return [
    `UPDATE (SELECT line, first_line
             FROM (SELECT line, MIN(line) OVER (PARTITION BY ${values}) AS first_line FROM catalogue_import_rows
                   WHERE import_id = ? AND fault IS NULL AND clash IS NULL AND ${isAsked}) same
             WHERE line > first_line) f
     STRAIGHT_JOIN ${ROWS} ON r.line = f.line
     SET r.clash = CONCAT('${clash} ', f.first_line) WHERE ${SOUND}`,
    [importId, importId],
  ]
}

/** The same test or package, and of prices the same party or rate list: the first line counts, the others are refused. */
function repeatedItems(importId: string): Statement {
  return repeated(importId, 'item_kind, code, party_id, rate_list_type', 'the same as line')
}

/**
 * What each row changes or prices: by outer joins, so that a row which is validated again, and finds the same, is not written.
 * Whether a row of prices changes one is asked of the prices, after this.
 */
function foundItems({ id, accountId, labId, kind }: CatalogueImport): Statement[] {
  const isUpdate = kind === 'tests' || kind === 'packages' ? 'i.id IS NOT NULL' : 'r.is_update'
  return (['test', 'package'] as const).map((itemKind) => [
    `UPDATE ${ROWS}
     LEFT JOIN ${itemKind}s i FORCE INDEX (${itemKind}s_code)
       ON i.lab_id = ? AND i.code = r.code AND i.account_id = ? AND i.removed_at IS NULL
     SET r.target_id = i.id, r.is_update = ${isUpdate} WHERE r.import_id = ? AND r.item_kind = '${itemKind}'`,
    [labId, accountId, id],
  ])
}

function unknownItems(importId: string): Statement {
  return [
    `UPDATE ${ROWS} SET r.clash = CONCAT('unknown ', r.item_kind, ' ', r.code)
     WHERE ${SOUND} AND r.target_id IS NULL`,
    [importId],
  ]
}

function unknownContents({ id, accountId, labId }: CatalogueImport): Statement {
  return [
    `UPDATE (SELECT c.line, MIN(c.test_code) AS test_code FROM catalogue_import_contents c FORCE INDEX (PRIMARY)
             LEFT JOIN tests t FORCE INDEX (tests_code)
               ON t.lab_id = ? AND t.code = c.test_code AND t.account_id = ? AND t.removed_at IS NULL
             WHERE c.import_id = ? AND t.id IS NULL GROUP BY c.line) u
     STRAIGHT_JOIN ${ROWS} ON r.line = u.line
     SET r.clash = CONCAT('unknown test ', u.test_code) WHERE ${SOUND}`,
    [labId, accountId, id, id],
  ]
}

function repeatedServiceIds(importId: string): Statement {
  return repeated(importId, 'service_id', 'the serviceID of line', 'service_id IS NOT NULL')
}

/** Another test of the lab has the serviceID, and this import does not give it another one. */
function takenServiceIds({ id, accountId, labId }: CatalogueImport): Statement {
  return [
    `UPDATE ${ROWS}
     STRAIGHT_JOIN tests t FORCE INDEX (tests_service)
       ON t.lab_id = ? AND t.service_id = r.service_id AND t.account_id = ? AND NOT t.id <=> r.target_id
     LEFT JOIN catalogue_import_rows o FORCE INDEX (catalogue_import_rows_code)
       ON o.import_id = ? AND o.item_kind = 'test' AND o.code = t.code AND o.sets_service_id AND o.fault IS NULL
     SET r.clash = CONCAT('the serviceID of the test ', t.code) WHERE ${SOUND} AND o.line IS NULL`,
    [labId, accountId, id, id],
  ]
}
