/** Calls of lead/create as the API makes them once their tokens are checked, without HTTP around them. */
import { IncomingMessage, ServerResponse } from 'node:http'
import { Socket } from 'node:net'
import type { Response } from 'express'
import type { BatchPool, Statement } from '../../db/batch.ts'
import { findAccount } from '../../src/accounts/accounts-repository.ts'
import type { Lab } from '../../src/catalogue/labs-repository.ts'
import { CRM_CALLS, unpackCalls } from '../../src/crm/crm-budget-rules.ts'
import { CrmAdmission } from '../../src/crm/crm-admission.ts'
import { createEntriesTogether, type EntryCall } from '../../src/crm/entries-together.ts'
import type { Entry, EntryRequest } from '../../src/crm/entry-rules.ts'
import type { Telecaller } from '../../src/crm/telecallers-repository.ts'
import { newId } from '../../src/ids.ts'
import type { TestApp } from './app.ts'
import { buildAccount, buildLab, buildTelecaller, leadBody, type TestAccount } from './builders.ts'

export interface Tenant {
  account: TestAccount
  lab: Lab
  telecaller: Telecaller
}

export async function buildTenants(app: TestApp, count: number): Promise<Tenant[]> {
  const tenants: Tenant[] = []
  for (let n = 0; n < count; n++) {
    const account = await buildAccount(app)
    tenants.push({ account, lab: await buildLab(app, account), telecaller: await buildTelecaller(app, account) })
  }
  return tenants
}

export interface EntryCalls {
  create: (call: EntryCall) => Promise<Entry>
  callOf: (tenant: Tenant, fields?: Record<string, unknown>) => EntryCall & { res: ServerResponse }
  /** Events that daemons would have been told of before they were committed. */
  foretold: string[]
}

/** One API process. */
export function entryCalls(app: TestApp, batch: BatchPool = app.database.batch): EntryCalls {
  const admission = new CrmAdmission(batch, CRM_CALLS, (id) => findAccount(app.database.knex, id))
  const foretold: string[] = []
  return {
    foretold,
    create: createEntriesTogether({ batch, clock: app.clock, committing: (eventId) => foretold.push(eventId) }),
    callOf({ account, lab }, fields = {}) {
      const res = new ServerResponse(new IncomingMessage(new Socket()))
      const caller = admission.callerOf(account.id, res as Response)
      if (!caller) throw new Error('the process knows that the account is over its budget')
      return { caller, res, body: leadBody(lab, fields) as unknown as EntryRequest, eventId: newId(app.clock.nowMs()) }
    },
  }
}

/** @param seen told of the statements of each round trip before they are sent */
export function watched(batch: BatchPool, seen: (statements: Statement[]) => void): BatchPool {
  return {
    ...batch,
    transaction: (work) => batch.transaction((send) => work((statements) => (seen(statements), send(statements)))),
  }
}

/** How many calls of an account were counted. */
export async function countedCalls(app: TestApp, accountId: string): Promise<number> {
  const row = await app.database.knex('crm_budgets').where({ account_id: accountId }).first('calls')
  return row ? unpackCalls(row.calls).filter((at) => at > 0).length : 0
}
