import { expect, test } from 'vitest'
import { DEFAULT_CRM_SETTINGS, paymentMethodsOf } from '../../src/crm/crm-settings-rules.ts'

test('every account takes UPI, Card and Cash, and its own gateways besides, each once', () => {
  expect(paymentMethodsOf(DEFAULT_CRM_SETTINGS)).toEqual(['UPI', 'Card', 'Cash'])
  const paymentGateways = ['PayLab', 'UPI', 'PayLab', 'upi']
  expect(paymentMethodsOf({ ...DEFAULT_CRM_SETTINGS, paymentGateways })).toEqual([
    'UPI',
    'Card',
    'Cash',
    'PayLab',
    'upi',
  ])
})

test('an account that has set nothing assigns in turn and has no custom field', () => {
  expect(DEFAULT_CRM_SETTINGS).toEqual({ assignStrategy: 'round_robin', customFields: [], paymentGateways: [] })
})
