import type { Knex } from 'knex'
import { addKey, dropKey, type TableKey } from '../table-keys.ts'

const KEY: TableKey = { table: 'attempts', name: 'attempts_recorded', columns: 'recorded_at' }

/** Attempts are found through their delivery; nobody looks for them by time, and the key cost every recorded attempt a fifth. */
export const up = (knex: Knex): Promise<void> => dropKey(knex, KEY)

export const down = (knex: Knex): Promise<void> => addKey(knex, KEY)
