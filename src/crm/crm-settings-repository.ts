import type { Knex } from 'knex'
import { DEFAULT_CRM_SETTINGS, type AssignStrategy, type CrmSettings } from './crm-settings-rules.ts'

/** The settings of the account, or the defaults. */
export async function getCrmSettings(knex: Knex, accountId: string): Promise<CrmSettings> {
  return toCrmSettings(await knex('crm_settings').where({ account_id: accountId }).first())
}

/** Sets all of them; what was there before is replaced. */
export async function updateCrmSettings(
  knex: Knex,
  accountId: string,
  settings: CrmSettings,
  now: Date,
): Promise<void> {
  await knex('crm_settings')
    .insert({
      account_id: accountId,
      assign_strategy: settings.assignStrategy,
      custom_fields: JSON.stringify(settings.customFields),
      payment_gateways: JSON.stringify(settings.paymentGateways),
      updated_at: now,
    })
    .onConflict()
    .merge(['assign_strategy', 'custom_fields', 'payment_gateways', 'updated_at'])
}

/** @param row of `crm_settings`; undefined: the account has none */
export function toCrmSettings(row: Record<string, unknown> | undefined): CrmSettings {
  if (!row) return DEFAULT_CRM_SETTINGS
  return {
    assignStrategy: row.assign_strategy as AssignStrategy,
    customFields: toList(row.custom_fields),
    paymentGateways: toList(row.payment_gateways),
  }
}

/** A JSON column comes parsed from MySQL and as text from MariaDB. */
function toList(value: unknown): string[] {
  return (typeof value === 'string' ? JSON.parse(value) : value) as string[]
}
