import type { Knex } from 'knex'
import { addKey, dropKey, type TableKey } from '../table-keys.ts'

const KEY: TableKey = { table: 'pre_bookings', name: 'pre_bookings_state', columns: 'account_id, status, id' }

/** The oldest pre-bookings of a state, without a walk over all that have gone on. */
export const up = (knex: Knex): Promise<void> => addKey(knex, KEY)

export const down = (knex: Knex): Promise<void> => dropKey(knex, KEY)
