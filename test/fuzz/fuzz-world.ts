/**
 * Tenants with something of everything, so that generated requests can name what exists. A new tenant follows before the
 * last one's CRM budget is used up.
 */
import { updateOperatorValues } from '../../src/billing/operator-lists-repository.ts'
import type { AccountMode } from '../../src/accounts/accounts-repository.ts'
import type { Lab } from '../../src/catalogue/labs-repository.ts'
import type { Package } from '../../src/catalogue/packages-repository.ts'
import type { Test } from '../../src/catalogue/tests-repository.ts'
import { newId } from '../../src/ids.ts'
import type { TestApp } from '../support/app.ts'
import {
  buildAccount,
  buildLab,
  buildOperatorKey,
  buildPackage,
  buildParty,
  buildPatient,
  buildReport,
  buildTelecaller,
  buildTest,
  nextNumber,
  setCrmSettings,
  subscribeBody,
  type TestAccount,
} from '../support/builders.ts'

export interface Tenant {
  account: TestAccount
  mode: AccountMode
  labs: Lab[]
  tests: Test[]
  packages: Package[]
  corporates: string[]
  doctors: string[]
  hospitals: string[]
  telecallers: string[]
  leadSources: string[]
  rateLists: string[]
  customFields: string[]
  paymentMethods: string[]
  patientContact: string
  /** Of the patient with that contact, logged in. */
  patientToken: string
}

/** Requests that a tenant makes at most: with what one needs before it up to two CRM calls each, and the budget of a test app is 500. */
const CALLS_OF_A_TENANT = 240

export class FuzzWorld {
  readonly app: TestApp
  readonly operatorKey: string
  readonly #tenants = new Map<AccountMode, { tenant: Tenant; calls: number }>()

  static async create(app: TestApp): Promise<FuzzWorld> {
    return new FuzzWorld(app, await buildOperatorKey(app))
  }

  private constructor(app: TestApp, operatorKey: string) {
    this.app = app
    this.operatorKey = operatorKey
  }

  /** @param calls that will be made with it */
  async tenant(mode: AccountMode, calls = 1): Promise<Tenant> {
    const known = this.#tenants.get(mode)
    if (known && known.calls + calls <= CALLS_OF_A_TENANT) {
      known.calls += calls
      return known.tenant
    }
    const tenant = await buildTenant(this.app, mode)
    this.#tenants.set(mode, { tenant, calls })
    return tenant
  }
}

export async function buildTenant(app: TestApp, mode: AccountMode): Promise<Tenant> {
  const account = await buildAccount(app, { mode, sandbox: true })
  const labs = [await buildLab(app, account), await buildLab(app, account)]
  const [lab] = labs as [Lab, Lab]
  const tests: Test[] = []
  for (const serviceId of [`SRV-${nextNumber()}`, `srv \u00e9${nextNumber()}`, null]) {
    tests.push(await buildTest(app, lab, { serviceId }))
  }
  const packages = [await buildPackage(app, lab, tests), await buildPackage(app, lab, tests.slice(0, 1))]
  const parties = async (kind: 'corporate' | 'doctor' | 'hospital') => [
    (await buildParty(app, account, kind)).id,
    (await buildParty(app, account, kind)).id,
  ]
  const settings = { customFields: ['ward', 'Ref. No.', '\u0939'], paymentGateways: ['Online', 'Pay-U 2'] }
  await setCrmSettings(app, account, settings)
  const leadSources = ['Partner', 'Walk in \u00e9']
  const rateLists = ['Gold', 'silver list']
  await app.database.transaction(async (trx) => {
    await updateOperatorValues(trx, account.id, 'lead_source', leadSources)
    await updateOperatorValues(trx, account.id, 'rate_list_type', rateLists)
  })
  const patient = await buildPatient(app, account)
  await buildReport(app, patient, lab)
  return {
    account,
    mode,
    labs,
    tests,
    packages,
    corporates: await parties('corporate'),
    doctors: await parties('doctor'),
    hospitals: await parties('hospital'),
    telecallers: [(await buildTelecaller(app, account)).id, (await buildTelecaller(app, account)).id],
    leadSources,
    rateLists,
    customFields: settings.customFields,
    paymentMethods: ['UPI', 'Card', 'Cash', ...settings.paymentGateways],
    patientContact: patient.contact,
    patientToken: await logIn(app, account, patient.contact),
  }
}

/** By SMS, as a patient does. */
export async function logIn(app: TestApp, account: TestAccount, contact: string): Promise<string> {
  const { otpToken, otp } = await requestOtp(app, account, contact)
  const answer = await app.call('POST', '/client/patient/verifyLoginOTP', {
    token: account.token,
    body: { otp, otpToken },
  })
  return answer.body.patientToken
}

/** @param contact of a patient of the account who is not waiting for a code yet */
export async function requestOtp(app: TestApp, account: TestAccount, contact: string) {
  const { body } = await app.call('POST', '/client/patient/getLoginOTP', { token: account.token, body: { contact } })
  await app.smsSender.settle()
  const sms = app.sms.taken.findLast(({ to }) => to === contact)
  if (!sms) throw new Error('no SMS arrived')
  return { otpToken: body.otpToken as string, otp: /\d{6}/.exec(sms.text)![0] }
}

/** An active webhook, of the party where there is one. @returns its id and the query that reaches it */
export async function subscribe(app: TestApp, tenant: Tenant): Promise<{ id: string; query: Record<string, string> }> {
  const lab = tenant.labs[0]!
  const party: Record<string, string> =
    tenant.mode === 'catch_all' ? {} : { corporateUser: (await buildParty(app, tenant.account, 'corporate')).id }
  const answer = await app.call('POST', '/client/events/subscribe', {
    token: tenant.account.token,
    body: subscribeBody(lab, party),
  })
  if (answer.status !== 200) throw new Error(`subscribe answers ${JSON.stringify(answer.body)}`)
  return { id: answer.body.data._id, query: { labID: lab.id, ...party } }
}

/** An id that nobody has. */
export const unknownId = (app: TestApp): string => newId(app.clock.nowMs())
