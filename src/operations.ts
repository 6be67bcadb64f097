/**
 * Which handler answers which operation, typed from the contracts: an operation without a handler, or an answer that the
 * contract does not have, does not compile.
 */
import type { Database } from '../db/connection.ts'
import { accountHandlers } from './accounts/account-handlers.ts'
import type { Account } from './accounts/accounts-repository.ts'
import { clientSecretHandlers } from './accounts/client-secret-handlers.ts'
import type { Reply, ValidatedCall } from './api.ts'
import { auditHandlers } from './audit/audit-handlers.ts'
import { auditOf, type Audit } from './audit/audit.ts'
import type { AccessTokens } from './auth/access-token.ts'
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
import type { Clock } from './clock.ts'
import { bookingHandlers } from './crm/booking-handlers.ts'
import type { LateCaller } from './crm/crm-admission.ts'
import { phlebotomistHandlers } from './crm/phlebotomist-handlers.ts'
import { staffEntryHandlers } from './crm/staff-entry-handlers.ts'
import { crmKeepingHandlers } from './crm/crm-keeping-handlers.ts'
import { entryHandlers } from './crm/entry-handlers.ts'
import type { Keys } from './crypto.ts'
import { deliveryLogHandlers } from './deliveries/delivery-log-handlers.ts'
import { deliveryLogOperatorHandlers } from './deliveries/delivery-log-operator-handlers.ts'
import { recoveryHandlers } from './deliveries/recovery-handlers.ts'
import { recoveryOperatorHandlers } from './deliveries/recovery-operator-handlers.ts'
import { erasureHandlers } from './erasure/erasure-handlers.ts'
import type { RetentionDays } from './erasure/erasure-rules.ts'
import type { HintKind } from './events/daemon-hints.ts'
import type { operations as ClientContract } from './generated/client.ts'
import type { operations as OperatorContract } from './generated/operator.ts'
import type { Idempotency } from './idempotency/idempotency.ts'
import { messageHandlers } from './messages/message-handlers.ts'
import { staffMessageHandlers } from './messages/staff-message-handlers.ts'
import { loginHandlers } from './patients/login-handlers.ts'
import { otpLockHandlers } from './patients/otp-lock-handlers.ts'
import type { PatientSession } from './patients/patient-authentication.ts'
import { patientKeepingHandlers } from './patients/patient-keeping-handlers.ts'
import type { PatientTokens } from './patients/patient-token.ts'
import { reportHandlers } from './patients/report-handlers.ts'
import type { SmsSender } from './patients/sms-sender.ts'
import { billReportHandlers } from './reports/bill-report-handlers.ts'
import type { Representation } from './representation.ts'
import type { ReportStore, StoredFile } from './reports/report-store.ts'
import { sandboxHandlers } from './sandbox/sandbox-handlers.ts'
import type { AddressPolicy } from './webhooks/endpoint-address.ts'
import { deactivatedWebhookHandlers } from './webhooks/deactivated-webhook-handlers.ts'
import { failingWebhookHandlers } from './webhooks/failing-webhook-handlers.ts'
import { webhookCareHandlers } from './webhooks/webhook-care-handlers.ts'
import { webhookHandlers } from './webhooks/webhook-handlers.ts'
import { webhookKeepingHandlers } from './webhooks/webhook-keeping-handlers.ts'

/** What handlers work with. */
export interface HandlerDeps {
  database: Database
  clock: Clock
  keys: Keys
  accessTokens: AccessTokens
  patientTokens: PatientTokens
  smsSender: SmsSender
  /** What integrators call this service by, without a slash at the end; known once it listens. */
  baseUrl: () => string
  reportStore: ReportStore
  /** How long what an erasure leaves is kept. */
  retention: RetentionDays
  /** Where deliveries may go. */
  addressPolicy: AddressPolicy
  /**
   * Tells the daemons that an event, or what else is named, was committed, or is at this moment. For speed only: nothing depends on it.
   * @param eventId one that waits; others may as well
   */
  hint: (kind?: HintKind, eventId?: string) => void
}

/** Where the contract takes a file instead of JSON. */
type FileOf<Operation> = Operation extends { requestBody: { content: { 'application/pdf': unknown } } }
  ? { file: StoredFile }
  : unknown

type JsonOf<T> = T extends { content: { 'application/json': infer Body } } ? Body : never
/** Of a body that may be left out every field may be, so that `{}` stands for it. */
type BodyOf<Operation> = Operation extends { requestBody?: infer Body } ? JsonOf<NonNullable<Body>> : undefined
/** `query` is optional where every parameter in it is, and `never` where there is none; a call always has one. */
type QueryOf<Operation> = Operation extends { parameters: { query?: infer Query } }
  ? [NonNullable<Query>] extends [never]
    ? Record<never, string>
    : NonNullable<Query>
  : Record<never, string>
type PathOf<Operation> = Operation extends { parameters: { path: infer Path } } ? Path : Record<never, string>

/** Where the contract takes an `Idempotency-Key`. */
type KeyOf<Operation> = Operation extends { parameters: { header?: infer Header } }
  ? 'Idempotency-Key' extends keyof NonNullable<Header>
    ? { idempotency: Idempotency }
    : unknown
  : unknown

/** The answers that are no errors; errors are thrown. */
type ReplyOf<Operation> = Operation extends { responses: infer Responses }
  ? {
      [Status in keyof Responses & (200 | 201)]: {
        status: Status
        body:
          JsonOf<Responses[Status]> | (304 extends keyof Responses ? Representation<JsonOf<Responses[Status]>> : never)
        headers?: Record<string, string>
      }
    }[keyof Responses & (200 | 201)]
  : never

interface Call<Operation> {
  body: BodyOf<Operation>
  query: QueryOf<Operation>
  path: PathOf<Operation>
  requestId: string
}

type ClientId = keyof ClientContract
type TokenOperation = 'issueToken' | 'refreshToken'
type PatientOperation = 'listPatientReports'
type LateOperation = 'createEntry'

/** Called without a token. */
export type OpenHandler<Id extends ClientId> = (call: Call<ClientContract[Id]>) => Promise<ReplyOf<ClientContract[Id]>>

/** Called by an integrator: everything that it does, it does within its account. */
export type AccountHandler<Id extends ClientId> = (
  call: Call<ClientContract[Id]> & KeyOf<ClientContract[Id]> & { account: Account },
) => Promise<ReplyOf<ClientContract[Id]>>

/** Called by an integrator who is admitted along with the work, where the request has no key. */
export type LateAccountHandler<Id extends ClientId> = (
  call: Call<ClientContract[Id]> & KeyOf<ClientContract[Id]> & { caller: Account | LateCaller },
) => Promise<ReplyOf<ClientContract[Id]>>

/** Called by an integrator for a patient who is logged in. */
export type PatientHandler<Id extends ClientId> = (
  call: Call<ClientContract[Id]> & { account: Account; patient: PatientSession },
) => Promise<ReplyOf<ClientContract[Id]>>

/** Called by the lab's own systems. */
export type OperatorHandler<Id extends keyof OperatorContract> = (
  call: Call<OperatorContract[Id]> &
    KeyOf<OperatorContract[Id]> &
    FileOf<OperatorContract[Id]> & { operator: OperatorKey; audit: Audit },
) => Promise<ReplyOf<OperatorContract[Id]>>

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
