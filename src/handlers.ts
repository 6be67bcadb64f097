/**
 * What handlers are, typed from the contracts: an answer that the contract does not have does not compile.
 */
import type { Database } from '../db/connection.ts'
import type { Account } from './accounts/accounts-repository.ts'
import type { AccessTokens } from './auth/access-token.ts'
import type { OperatorKey } from './auth/operator-keys-repository.ts'
import type { Clock } from './clock.ts'
import type { LateCaller } from './crm/crm-admission.ts'
import type { Keys } from './crypto.ts'
import type { RetentionDays } from './erasure/erasure-rules.ts'
import type { HintKind } from './events/daemon-hints.ts'
import type { operations as ClientContract } from './generated/client.ts'
import type { operations as OperatorContract } from './generated/operator.ts'
import type { Idempotency } from './idempotency/idempotency.ts'
import type { PatientSession } from './patients/patient-authentication.ts'
import type { PatientTokens } from './patients/patient-token.ts'
import type { SmsSender } from './patients/sms-sender.ts'
import type { Representation } from './representation.ts'
import type { ReportStore, StoredFile } from './reports/report-store.ts'
import type { AddressPolicy } from './webhooks/endpoint-address.ts'
import type { Audit } from './audit/audit.ts'

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

export type ClientId = keyof ClientContract

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
