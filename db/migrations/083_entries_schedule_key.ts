import type { Knex } from 'knex'
import { addKey, dropKey, type TableKey } from '../table-keys.ts'

const KEY: TableKey = { table: 'entries', name: 'entries_schedule', columns: 'account_id, phase, scheduled_at, id' }

/** The days of an account, in the order in which its bookings are listed. */
export const up = (knex: Knex): Promise<void> => addKey(knex, KEY)

export const down = (knex: Knex): Promise<void> => dropKey(knex, KEY)
