/**
 * A validated import becomes the catalogue: what is there is changed, everything else is created, nothing is removed.
 *
 * The order of tables and their keys are said: it begins with the import's rows. MySQL 9 has begun with the tests of a small lab and read
 * all contents of the import for each. See `import-validation-repository.ts`.
 */
import type { Knex } from 'knex'
import { isDuplicate } from '../../db/connection.ts'
import { renewCatalogueVersion } from './catalogue-versions-repository.ts'
import { ROWS, type CatalogueImport } from './imports-repository.ts'

type Statement = [sql: string, values: unknown[]]

/**
 * Every row, in the transaction that validated them.
 * @returns false when something was created meanwhile that has a code or serviceID of a row: the unique keys decide it, and the
 *   transaction must be given up
 */
export async function commitRows(trx: Knex.Transaction, validated: CatalogueImport, now: Date): Promise<boolean> {
  try {
    for (const [sql, values] of STATEMENTS_OF_KIND[validated.kind](validated, now)) {
      await trx.raw(sql, values as Knex.RawBinding[])
    }
    await renewCatalogueVersion(trx, validated.labId)
    return true
  } catch (error) {
    if (isDuplicate(error)) return false
    throw error
  }
}

const STATEMENTS_OF_KIND: Record<CatalogueImport['kind'], (validated: CatalogueImport, now: Date) => Statement[]> = {
  tests: ({ id, accountId, labId }, now) => [
    // Freed first, so that two tests of the file can exchange theirs.
    [
      `UPDATE ${ROWS} STRAIGHT_JOIN tests t FORCE INDEX (PRIMARY) ON t.id = r.target_id SET t.service_id = NULL
       WHERE r.import_id = ? AND r.sets_service_id AND NOT t.service_id <=> r.service_id`,
      [id],
    ],
    [
      `UPDATE ${ROWS} STRAIGHT_JOIN tests t FORCE INDEX (PRIMARY) ON t.id = r.target_id
       SET t.name = r.name, t.cost = r.price, t.service_id = IF(r.sets_service_id, r.service_id, t.service_id)
       WHERE r.import_id = ?`,
      [id],
    ],
    [
      `INSERT INTO tests (id, account_id, lab_id, name, code, cost, service_id, created_at)
       SELECT r.new_id, ?, ?, r.name, r.code, r.price, r.service_id, ? FROM ${ROWS}
       WHERE r.import_id = ? AND r.target_id IS NULL`,
      [accountId, labId, now, id],
    ],
  ],
  packages: ({ id, accountId, labId }, now) => [
    [
      `UPDATE ${ROWS} STRAIGHT_JOIN packages k FORCE INDEX (PRIMARY) ON k.id = r.target_id
       SET k.name = r.name, k.total = r.price WHERE r.import_id = ?`,
      [id],
    ],
    [
      `INSERT INTO packages (id, account_id, lab_id, name, code, total, created_at)
       SELECT r.new_id, ?, ?, r.name, r.code, r.price, ? FROM ${ROWS} WHERE r.import_id = ? AND r.target_id IS NULL`,
      [accountId, labId, now, id],
    ],
    [
      `DELETE c FROM ${ROWS} STRAIGHT_JOIN package_tests c FORCE INDEX (PRIMARY) ON c.package_id = r.target_id
       WHERE r.import_id = ?`,
      [id],
    ],
    [
      `INSERT INTO package_tests (package_id, position, test_id)
       SELECT COALESCE(r.target_id, r.new_id), c.position, t.id
       FROM ${ROWS}
       STRAIGHT_JOIN catalogue_import_contents c FORCE INDEX (PRIMARY) ON c.import_id = r.import_id AND c.line = r.line
       STRAIGHT_JOIN tests t FORCE INDEX (tests_code)
         ON t.lab_id = ? AND t.code = c.test_code AND t.account_id = ? AND t.removed_at IS NULL
       WHERE r.import_id = ?`,
      [labId, accountId, id],
    ],
  ],
  party_prices: ({ id }) => [
    [
      `INSERT INTO party_test_prices (party_id, test_id, cost)
       SELECT r.party_id, r.target_id, r.price FROM ${ROWS} WHERE r.import_id = ? AND r.item_kind = 'test'
       ON DUPLICATE KEY UPDATE cost = r.price`,
      [id],
    ],
    [
      `INSERT INTO party_package_prices (party_id, package_id, price)
       SELECT r.party_id, r.target_id, r.price FROM ${ROWS} WHERE r.import_id = ? AND r.item_kind = 'package'
       ON DUPLICATE KEY UPDATE price = r.price`,
      [id],
    ],
  ],
  rate_list_prices: ({ id, accountId }) => [
    [
      `INSERT INTO rate_list_prices (account_id, rate_list_type, item_id, price)
       SELECT ?, r.rate_list_type, r.target_id, r.price FROM ${ROWS} WHERE r.import_id = ?
       ON DUPLICATE KEY UPDATE price = r.price`,
      [accountId, id],
    ],
  ],
}
