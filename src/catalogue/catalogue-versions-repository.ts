/**
 * The version of a lab's catalogue: who has seen its rows under a version need not read them again under the same one.
 */
import type { Knex } from 'knex'
import { newId } from '../ids.ts'

/**
 * Belongs in the transaction of every change of what integrators are listed, after it: who waits here for another change of
 * the lab has all its other locks. A version is random, not a count: after a restore from a backup none comes back with another
 * content.
 */
export async function renewCatalogueVersion(knex: Knex, labId: string): Promise<void> {
  await knex.raw(
    'INSERT INTO catalogue_versions (lab_id, version) VALUES (?, ?) ON DUPLICATE KEY UPDATE version = VALUES(version)',
    [labId, newId(0)],
  )
}

/** The same, by a test or package of the lab. */
export async function renewCatalogueVersionOf(knex: Knex, table: 'tests' | 'packages', itemId: string): Promise<void> {
  const item = await knex(table).where({ id: itemId }).first('lab_id')
  if (item) await renewCatalogueVersion(knex, item.lab_id)
}

/**
 * To be read before the rows: a change that commits in between is in the rows then, and has taken the version out of use.
 * @returns '' where nothing has changed yet
 */
export async function findCatalogueVersion(knex: Knex, labId: string): Promise<string> {
  return (await knex('catalogue_versions').where({ lab_id: labId }).first('version'))?.version ?? ''
}
