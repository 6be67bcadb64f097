/**
 * An import's rows judged beside each other and the catalogue, as SQL over the whole set: 20,000 rows are a few statements.
 * A row keeps its first clash; one that is at fault by itself is judged no further.
 */
import type { Knex } from 'knex'
import type { CatalogueImport, ImportCounts } from './imports-repository.ts'

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
      `UPDATE catalogue_import_rows r LEFT JOIN parties p ON p.id = r.party_id AND p.account_id = ?
       SET r.clash = CONCAT('unknown party ', r.party_id) WHERE ${SOUND} AND p.id IS NULL`,
      [begun.accountId, begun.id],
    ],
    unknownItems(begun.id),
    [
      `UPDATE catalogue_import_rows r
       LEFT JOIN party_test_prices t ON r.item_kind = 'test' AND t.party_id = r.party_id AND t.test_id = r.target_id
       LEFT JOIN party_package_prices p ON r.item_kind = 'package' AND p.party_id = r.party_id AND p.package_id = r.target_id
       SET r.is_update = t.party_id IS NOT NULL OR p.party_id IS NOT NULL WHERE r.import_id = ?`,
      [begun.id],
    ],
  ],
  rate_list_prices: (begun) => [
    [
      `UPDATE catalogue_import_rows r
       LEFT JOIN operator_lists l ON l.account_id = ? AND l.list = 'rate_list_type' AND l.value = r.rate_list_type
       SET r.clash = CONCAT('unknown rate list ', r.rate_list_type) WHERE ${SOUND} AND l.value IS NULL`,
      [begun.accountId, begun.id],
    ],
    unknownItems(begun.id),
    [
      `UPDATE catalogue_import_rows r
       LEFT JOIN rate_list_prices p ON p.account_id = ? AND p.rate_list_type = r.rate_list_type AND p.item_id = r.target_id
       SET r.is_update = p.item_id IS NOT NULL WHERE r.import_id = ?`,
      [begun.accountId, begun.id],
    ],
  ],
}

/** The same test or package, and of prices the same party or rate list: the first line counts, the others are refused. */
function repeatedItems(importId: string): Statement {
  return [
    `UPDATE catalogue_import_rows r
     JOIN (SELECT item_kind, code, party_id, rate_list_type, MIN(line) AS first_line FROM catalogue_import_rows
           WHERE import_id = ? AND fault IS NULL
           GROUP BY item_kind, code, party_id, rate_list_type HAVING COUNT(*) > 1) f
       ON f.item_kind = r.item_kind AND f.code = r.code
       AND f.party_id <=> r.party_id AND f.rate_list_type <=> r.rate_list_type
     SET r.clash = CONCAT('the same as line ', f.first_line) WHERE ${SOUND} AND r.line > f.first_line`,
    [importId, importId],
  ]
}

/**
 * What each row changes or prices: by outer joins, so that a row which is validated again, and finds the same, is not written.
 * Whether a row of prices changes one is asked of the prices, after this.
 */
function foundItems({ id, accountId, labId, kind }: CatalogueImport): Statement[] {
  const isUpdate = kind === 'tests' || kind === 'packages' ? 'i.id IS NOT NULL' : 'r.is_update'
  return (['test', 'package'] as const).map((itemKind) => [
    `UPDATE catalogue_import_rows r
     LEFT JOIN ${itemKind}s i ON i.lab_id = ? AND i.code = r.code AND i.account_id = ? AND i.removed_at IS NULL
     SET r.target_id = i.id, r.is_update = ${isUpdate} WHERE r.import_id = ? AND r.item_kind = '${itemKind}'`,
    [labId, accountId, id],
  ])
}

function unknownItems(importId: string): Statement {
  return [
    `UPDATE catalogue_import_rows r SET r.clash = CONCAT('unknown ', r.item_kind, ' ', r.code)
     WHERE ${SOUND} AND r.target_id IS NULL`,
    [importId],
  ]
}

function unknownContents({ id, accountId, labId }: CatalogueImport): Statement {
  return [
    `UPDATE catalogue_import_rows r
     JOIN (SELECT c.line, MIN(c.test_code) AS test_code FROM catalogue_import_contents c
           LEFT JOIN tests t ON t.lab_id = ? AND t.code = c.test_code AND t.account_id = ? AND t.removed_at IS NULL
           WHERE c.import_id = ? AND t.id IS NULL GROUP BY c.line) u ON u.line = r.line
     SET r.clash = CONCAT('unknown test ', u.test_code) WHERE ${SOUND}`,
    [labId, accountId, id, id],
  ]
}

function repeatedServiceIds(importId: string): Statement {
  return [
    `UPDATE catalogue_import_rows r
     JOIN (SELECT service_id, MIN(line) AS first_line FROM catalogue_import_rows
           WHERE import_id = ? AND fault IS NULL AND clash IS NULL AND service_id IS NOT NULL
           GROUP BY service_id HAVING COUNT(*) > 1) f ON f.service_id = r.service_id
     SET r.clash = CONCAT('the serviceID of line ', f.first_line) WHERE ${SOUND} AND r.line > f.first_line`,
    [importId, importId],
  ]
}

/** Another test of the lab has the serviceID, and this import does not give it another one. */
function takenServiceIds({ id, accountId, labId }: CatalogueImport): Statement {
  return [
    `UPDATE catalogue_import_rows r
     JOIN tests t ON t.lab_id = ? AND t.service_id = r.service_id AND t.account_id = ? AND NOT t.id <=> r.target_id
     LEFT JOIN catalogue_import_rows o ON o.import_id = ? AND o.item_kind = 'test' AND o.code = t.code AND o.sets_service_id
       AND o.fault IS NULL
     SET r.clash = CONCAT('the serviceID of the test ', t.code) WHERE ${SOUND} AND o.line IS NULL`,
    [labId, accountId, id, id],
  ]
}
