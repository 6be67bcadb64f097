import type { Knex } from 'knex'
import { addKey, dropKey, type TableKey } from '../table-keys.ts'

const KEY: TableKey = { table: 'otp_contacts', name: 'otp_contacts_age', columns: 'failures_in_row, created_at' }

/** Finds contacts that may be forgotten. */
export const up = (knex: Knex): Promise<void> => addKey(knex, KEY)

export const down = (knex: Knex): Promise<void> => dropKey(knex, KEY)
