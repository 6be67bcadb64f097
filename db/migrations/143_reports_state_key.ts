import type { Knex } from 'knex'
import { addKey, dropKey, type TableKey } from '../table-keys.ts'

const KEY: TableKey = { table: 'reports', name: 'reports_state', columns: 'account_id, status, id' }

/** The oldest reports of a state: drafts are the newest rows, and the rest is not walked over for them. */
export const up = (knex: Knex): Promise<void> => addKey(knex, KEY)

export const down = (knex: Knex): Promise<void> => dropKey(knex, KEY)
