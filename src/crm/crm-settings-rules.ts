/**
 * What an account's CRM settings allow. Pure.
 */
import type { components } from '../generated/operator.ts'

export type AssignStrategy = components['schemas']['AssignStrategy']

export interface CrmSettings {
  assignStrategy: AssignStrategy
  /** Keys that `customFields` of an entry may have. */
  customFields: string[]
  /** Names that `paymentMethod` may have besides those that every account has. */
  paymentGateways: string[]
}

/** Of an account that has set nothing. */
export const DEFAULT_CRM_SETTINGS: CrmSettings = {
  assignStrategy: 'round_robin',
  customFields: [],
  paymentGateways: [],
}

/** What the specification allows on every account. */
const PAYMENT_METHODS = ['UPI', 'Card', 'Cash']

export function paymentMethodsOf(settings: CrmSettings): string[] {
  return [...new Set([...PAYMENT_METHODS, ...settings.paymentGateways])]
}
