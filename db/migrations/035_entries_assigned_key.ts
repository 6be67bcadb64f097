import type { Knex } from 'knex'
import { addKey, dropKey, type TableKey } from '../table-keys.ts'

const KEY: TableKey = { table: 'entries', name: 'entries_assigned', columns: 'account_id, assigned_to, phase' }

/** Counts the open leads of a telecaller without reading them. */
export const up = (knex: Knex): Promise<void> => addKey(knex, KEY)

export const down = (knex: Knex): Promise<void> => dropKey(knex, KEY)
