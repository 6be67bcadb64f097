import type { Knex } from 'knex'
import { addKey, dropKey, type TableKey } from '../table-keys.ts'

const KEY: TableKey = { table: 'deliveries', name: 'deliveries_event', columns: 'event_id' }

/** An event's deliveries are those of its lab's webhooks, each found by the primary key: this one cost every delivery a write. */
export const up = (knex: Knex): Promise<void> => dropKey(knex, KEY)

export const down = (knex: Knex): Promise<void> => addKey(knex, KEY)
