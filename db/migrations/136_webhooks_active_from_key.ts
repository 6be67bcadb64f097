import type { Knex } from 'knex'
import { addKey, dropKey, type TableKey } from '../table-keys.ts'

const KEY: TableKey = { table: 'webhooks', name: 'webhooks_lab_active_from', columns: 'lab_id, active_from' }

/** When webhooks of a lab have begun, the latest first: asked for each event that is recorded. */
export const up = (knex: Knex): Promise<void> => addKey(knex, KEY)

export const down = (knex: Knex): Promise<void> => dropKey(knex, KEY)
