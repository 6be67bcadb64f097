import type { Knex } from 'knex'
import { addKey, dropKey, type TableKey } from '../table-keys.ts'

const KEY: TableKey = { table: 'entries', name: 'entries_phlebotomist', columns: 'phlebotomist_id, scheduled_at, id' }

/** The days of a phlebotomist. */
export const up = (knex: Knex): Promise<void> => addKey(knex, KEY)

export const down = (knex: Knex): Promise<void> => dropKey(knex, KEY)
