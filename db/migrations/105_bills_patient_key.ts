import type { Knex } from 'knex'
import { addKey, dropKey, type TableKey } from '../table-keys.ts'

const KEY: TableKey = { table: 'bills', name: 'bills_patient', columns: 'patient_id' }

/** The bills of a patient. */
export const up = (knex: Knex): Promise<void> => addKey(knex, KEY)

export const down = (knex: Knex): Promise<void> => dropKey(knex, KEY)
