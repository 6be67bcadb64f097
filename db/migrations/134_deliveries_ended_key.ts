import type { Knex } from 'knex'
import { addKey, dropKey, type TableKey } from '../table-keys.ts'

const KEY: TableKey = { table: 'deliveries', name: 'deliveries_ended', columns: 'ended_at' }

/** What is to be purged is found by the primary key, webhook by webhook: this one cost every delivery a write. */
export const up = (knex: Knex): Promise<void> => dropKey(knex, KEY)

export const down = (knex: Knex): Promise<void> => addKey(knex, KEY)
