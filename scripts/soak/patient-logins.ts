/**
 * Patients who log in and look at their reports: a code is asked for, comes by SMS, is sent, sometimes wrong at first, and the
 * reports are fetched. Each step is one call of the schedule.
 */
import type { SmsSink } from './sms-sink.ts'
import type { SoakPatient, SoakWorld } from './soak-accounts.ts'
import type { Asked, SoakCalls } from './soak-calls.ts'

interface Login {
  patient: SoakPatient
  otpToken: string
  isMistyped: boolean
}

/** Of so many logins one begins with a wrong code. */
const MISTYPED_EACH = 10

export class PatientLogins {
  readonly #world: SoakWorld
  readonly #sms: SmsSink
  readonly #ask: SoakCalls['ask']
  /** Those whose code is on its way. */
  readonly #waiting: Login[] = []
  readonly #loggedIn: { patient: SoakPatient; patientToken: string }[] = []
  #begun = 0

  constructor(world: SoakWorld, sms: SmsSink, ask: SoakCalls['ask']) {
    this.#world = world
    this.#sms = sms
    this.#ask = ask
  }

  /** Whoever is furthest takes the next step. */
  async step(dueAtMs: number): Promise<void> {
    const loggedIn = this.#loggedIn.shift()
    if (loggedIn) return this.#reports(loggedIn, dueAtMs)
    const place = this.#waiting.findIndex(({ patient }) => this.#sms.codeOf(patient.contact) !== undefined)
    if (place >= 0) return this.#verify(this.#waiting.splice(place, 1)[0]!, dueAtMs)
    return this.#begin(dueAtMs)
  }

  async #begin(dueAtMs: number): Promise<void> {
    const n = this.#begun++
    const patient = this.#world.patients[n % this.#world.patients.length]!
    this.#sms.forget(patient.contact)
    const answer = await this.#ask({
      ...post('getLoginOTP', patient, dueAtMs),
      body: { contact: patient.contact },
      planned: [200],
    })
    if (answer?.status !== 200) return
    this.#waiting.push({ patient, otpToken: answer.body.otpToken, isMistyped: n % MISTYPED_EACH === 0 })
  }

  async #verify(login: Login, dueAtMs: number): Promise<void> {
    const { patient, otpToken, isMistyped } = login
    const code = this.#sms.codeOf(patient.contact)!
    const otp = isMistyped ? String((Number(code) + 1) % 1_000_000).padStart(6, '0') : code
    const asked = post(isMistyped ? 'a wrong code' : 'verifyLoginOTP', patient, dueAtMs, 'verifyLoginOTP')
    const answer = await this.#ask({ ...asked, body: { otp, otpToken }, planned: [isMistyped ? 401 : 200] })
    if (isMistyped && answer?.isPlanned) this.#waiting.push({ ...login, isMistyped: false })
    if (answer?.status === 200) this.#loggedIn.push({ patient, patientToken: answer.body.patientToken })
  }

  async #reports({ patient, patientToken }: { patient: SoakPatient; patientToken: string }, dueAtMs: number) {
    await this.#ask({
      ...post('getReports', patient, dueAtMs),
      method: 'GET',
      path: `/client/patient/getReports?labID=${patient.account.lab}`,
      headers: { 'patient-authorization': `Bearer ${patientToken}` },
      planned: [200],
      holds: (reports) => reports.length > 0,
    })
  }
}

function post(
  what: string,
  { account }: SoakPatient,
  dueAtMs: number,
  operation = what,
): Omit<Asked, 'body' | 'planned'> {
  return { what, kind: 'patient', dueAtMs, method: 'POST', path: `/client/patient/${operation}`, account }
}
