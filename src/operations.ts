/**
 * Which handler answers which operation, typed from the contracts: an operation without a handler, or an answer that the
 * contract does not have, does not compile.
 */
import { accountHandlers } from './accounts/account-handlers.ts'
import { clientSecretHandlers } from './accounts/client-secret-handlers.ts'
import type { ValidatedCall } from './api.ts'
import type { Reply } from './reply.ts'
import { auditHandlers } from './audit/audit-handlers.ts'
import { auditOf } from './audit/audit.ts'
import { operatorKeyHandlers } from './auth/operator-key-handlers.ts'
import type { OperatorKey } from './auth/operator-keys-repository.ts'
import { tokenHandlers } from './auth/token-handlers.ts'
import { billingKeepingHandlers } from './billing/billing-keeping-handlers.ts'
import { preBookingHandlers } from './billing/pre-booking-handlers.ts'
import { catalogueHandlers } from './catalogue/catalogue-handlers.ts'
import { importHandlers } from './catalogue/import-handlers.ts'
import { labKeepingHandlers } from './catalogue/lab-keeping-handlers.ts'
import { packageKeepingHandlers } from './catalogue/package-keeping-handlers.ts'
import { partyKeepingHandlers } from './catalogue/party-keeping-handlers.ts'
import { partyPriceHandlers } from './catalogue/party-price-handlers.ts'
import { testKeepingHandlers } from './catalogue/test-keeping-handlers.ts'
import { billHandlers } from './billing/bill-handlers.ts'
import { bookingHandlers } from './crm/booking-handlers.ts'
import { phlebotomistHandlers } from './crm/phlebotomist-handlers.ts'
import { staffEntryHandlers } from './crm/staff-entry-handlers.ts'
import { crmKeepingHandlers } from './crm/crm-keeping-handlers.ts'
import { entryHandlers } from './crm/entry-handlers.ts'
import { deliveryLogHandlers } from './deliveries/delivery-log-handlers.ts'
import { deliveryLogOperatorHandlers } from './deliveries/delivery-log-operator-handlers.ts'
import { recoveryHandlers } from './deliveries/recovery-handlers.ts'
import { recoveryOperatorHandlers } from './deliveries/recovery-operator-handlers.ts'
import { erasureHandlers } from './erasure/erasure-handlers.ts'
import type { operations as OperatorContract } from './generated/operator.ts'
import { messageHandlers } from './messages/message-handlers.ts'
import { staffMessageHandlers } from './messages/staff-message-handlers.ts'
import { loginHandlers } from './patients/login-handlers.ts'
import { otpLockHandlers } from './patients/otp-lock-handlers.ts'
import { patientKeepingHandlers } from './patients/patient-keeping-handlers.ts'
import { reportHandlers } from './patients/report-handlers.ts'
import { billReportHandlers } from './reports/bill-report-handlers.ts'
import { sandboxHandlers } from './sandbox/sandbox-handlers.ts'
import { deactivatedWebhookHandlers } from './webhooks/deactivated-webhook-handlers.ts'
import { failingWebhookHandlers } from './webhooks/failing-webhook-handlers.ts'
import { webhookCareHandlers } from './webhooks/webhook-care-handlers.ts'
import { webhookHandlers } from './webhooks/webhook-handlers.ts'
import { webhookKeepingHandlers } from './webhooks/webhook-keeping-handlers.ts'
import type {
  AccountHandler,
  ClientId,
  HandlerDeps,
  LateAccountHandler,
  OpenHandler,
  OperatorHandler,
  PatientHandler,
} from './handlers.ts'

type TokenOperation = 'issueToken' | 'refreshToken'
type PatientOperation = 'listPatientReports'
type LateOperation = 'createEntry'

type ClientHandlers = {
  [Id in ClientId]: Id extends TokenOperation
    ? OpenHandler<Id>
    : Id extends PatientOperation
      ? PatientHandler<Id>
      : Id extends LateOperation
        ? LateAccountHandler<Id>
        : AccountHandler<Id>
}
type OperatorHandlers = { [Id in keyof OperatorContract]: OperatorHandler<Id> }

export type Handlers = Record<string, (call: ValidatedCall) => Promise<Reply>>

export function clientOperations(deps: HandlerDeps): Handlers {
  const handlers: ClientHandlers = {
    ...tokenHandlers(deps),
    ...catalogueHandlers(deps),
    ...entryHandlers(deps),
    ...webhookHandlers(deps),
    ...deactivatedWebhookHandlers(deps),
    ...webhookCareHandlers(deps),
    ...deliveryLogHandlers(deps),
    ...recoveryHandlers(deps),
    ...preBookingHandlers(deps),
    ...loginHandlers(deps),
    ...reportHandlers(deps),
    ...sandboxHandlers(deps),
  }
  return withCaller(handlers, ({ security, ...call }) => ({
    ...call,
    account: security.integrator,
    caller: security.integrator,
    patient: security.patient,
  }))
}

export function operatorOperations(deps: HandlerDeps): Handlers {
  const handlers: OperatorHandlers = {
    ...operatorKeyHandlers(deps),
    ...accountHandlers(deps),
    ...clientSecretHandlers(deps),
    ...labKeepingHandlers(deps),
    ...partyKeepingHandlers(deps),
    ...auditHandlers(deps),
    ...patientKeepingHandlers(deps),
    ...erasureHandlers(deps),
    ...webhookKeepingHandlers(deps),
    ...testKeepingHandlers(deps),
    ...packageKeepingHandlers(deps),
    ...partyPriceHandlers(deps),
    ...importHandlers(deps),
    ...billingKeepingHandlers(deps),
    ...crmKeepingHandlers(deps),
    ...phlebotomistHandlers(deps),
    ...staffEntryHandlers(deps),
    ...bookingHandlers(deps),
    ...billHandlers(deps),
    ...billReportHandlers(deps),
    ...staffMessageHandlers(deps),
    ...otpLockHandlers(deps),
    ...deliveryLogOperatorHandlers(deps),
    ...recoveryOperatorHandlers(deps),
    ...failingWebhookHandlers(deps),
    ...messageHandlers(deps),
  }
  return withCaller(handlers, (call, operationId) => {
    const operator = call.security.operatorKey as OperatorKey
    return { ...call, operator, audit: auditOf(deps.clock, operator, operationId, call.requestId) }
  })
}

/**
 * The one place where the contract's types are taken on trust: what reaches a handler was validated against the schemas
 * that the types were generated from.
 */
function withCaller(handlers: object, toCall: (call: ValidatedCall, operationId: string) => object): Handlers {
  const trusted = Object.entries(handlers) as [string, (call: object) => Promise<Reply>][]
  return Object.fromEntries(trusted.map(([id, handler]) => [id, (call: ValidatedCall) => handler(toCall(call, id))]))
}
