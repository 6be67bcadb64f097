/**
 * Values that occur nowhere else, in every field that carries something of a patient, and every token, code and secret that is
 * handed out: what must not be found where it does not belong.
 */
import { randomBytes, randomInt } from 'node:crypto'
import type { ContractOperation } from './contract-checker.ts'

/** Of a patient, by its path in a request's body; the last name of a list or of free fields stands for all below it. */
export const PATIENT_FIELDS = new Set([
  'title', 'first_name', 'last_name', 'contact', 'email', 'address', 'pincode', 'location', 'petOwnerName', 'breed', 'animalCategory',
  'notes', 'unmappedTests[].name', 'unmappedPackages[].name', 'customFields', 'patient_details.first_name',
  'patient_details.last_name', 'unmapped_tests[]', 'unmapped_packages[]', 'unmapped_packages_with_tests[].package_name',
  'unmapped_packages_with_tests[].tests[]', 'barCode', 'recipient.contact', 'recipient.name', 'text', 'variables',
  'attachmentUrl', 'firstName', 'lastName',
]) // prettier-ignore

/** What proves who somebody is. */
export const SECRET_FIELDS = new Set(['clientSecret', 'refreshToken', 'otp', 'otpToken'])

/** Texts that name no patient: ids, words of a list, what the lab keeps, names of its staff. */
export const OTHER_FIELDS = new Set([
  'clientID', 'labID', 'branchID', 'events[]', 'endpoint', 'protocol', 'corporateUser', 'organization', 'webhookId', 'since',
  'integratorID', 'integrator_id', 'phase', 'country_code', 'age_type', 'gender', 'source', 'priority', 'assignedTo',
  'tests[].test', 'packages[].package', 'referredOrganization', 'referredHospitalOrganization', 'bookingType', 'scheduledAt',
  'paymentStatus', 'paymentMethod', 'patient_details.gender', 'patient_details.age_type', 'lead_source',
  'mapped_tests[].service_id', 'mapped_tests[].id', 'mapped_packages[].id', 'doctor', 'hospital', 'rate_list_type', 'leadId',
  'ending', 'name', 'mode', 'timeZone', 'adminEmail', 'kind', 'assignStrategy', 'customFields[]', 'paymentGateways[]', 'type',
  'template', 'code', 'serviceID', 'tests[]', 'partyId', 'test', 'package', 'leadSources[]', 'rateListTypes[]', 'rateListType',
  'role', 'accountId', 'patientId', 'leadIds[]', 'preBookingIds[]', 'billIds[]', 'rows[].cells', 'items[].test', 'items[].package', 'phlebotomistId',
]) // prettier-ignore

/** In answers. */
const HANDED_OUT = new Set(['authToken', 'refreshToken', 'clientSecret', 'secret', 'otpToken', 'patientToken', 'key'])

/** Operations whose `name` is a patient's. */
const NAMES_A_PATIENT = new Set(['createPatient', 'updatePatient'])

/** Operations whose `contact` is a lab's. */
const CALLS_A_LAB = new Set(['createLab', 'updateLab'])

export interface Canary {
  what: string
  /** Of a patient, or what opens something. */
  kind: 'patient' | 'secret'
  /** A word of its own: ids and times have digits, too. */
  isWord: boolean
}

/** All forms of all canaries begin with so many characters that no two things share by chance. */
const PREFIX = 6
/** Of what the tests themselves choose. */
const LEAST_NOTED = 8

export class Canaries {
  /** By each form in which one might stand somewhere, those with the same beginning together. */
  readonly #forms = new Map<string, Map<string, Canary>>()

  #add(form: string, canary: Canary): void {
    const prefix = form.slice(0, PREFIX)
    const alike = this.#forms.get(prefix) ?? new Map<string, Canary>()
    this.#forms.set(prefix, alike.set(form, canary))
  }

  /** A text that stands for something of a patient, added to what is there. */
  plant(what: string, text = ''): string {
    const canary = `zqv${randomBytes(8).toString('hex')}`
    this.#add(canary, { what, kind: 'patient', isWord: false })
    return `${text}${canary}`
  }

  /** A number of a patient, or a code. */
  addDigits(kind: Canary['kind'], what: string, digits: string): void {
    this.#add(digits, { what, kind, isWord: true })
  }

  /** In each form in which it might be kept: as it is, and as the bytes that it stands for. */
  addSecret(what: string, secret: string): void {
    const bytes = secret.startsWith('whsec_') ? Buffer.from(secret.slice(6), 'base64') : undefined
    const forms = [
      secret.replace(/^whsec_/, ''),
      Buffer.from(secret).toString('base64').replace(/=+$/, ''),
      ...(bytes ? [bytes.toString('latin1'), bytes.toString('hex'), bytes.toString('base64url')] : []),
    ]
    for (const form of forms) this.#add(form, { what, kind: 'secret', isWord: false })
  }

  /** With a canary in every field that is a patient's. The secrets in it are known from now on. */
  plantInBody(operation: ContractOperation | undefined, body: unknown): unknown {
    const { operationId = '' } = operation ?? {}
    return mapTexts(body, (path, text, isPatients) => {
      if (SECRET_FIELDS.has(path) && path !== 'otp') this.addSecret(path, text)
      const isName = path === 'name' && NAMES_A_PATIENT.has(operationId)
      const isLabs = path === 'contact' && CALLS_A_LAB.has(operationId)
      return !isLabs && (isPatients || isName) ? this.#plantInText(path, text) : text
    })
  }

  /** What a body has in those fields, as it is. Short words stand in many places. */
  noteBody(body: unknown): void {
    mapTexts(body, (path, text, isPatients) => {
      if (SECRET_FIELDS.has(path) && path !== 'otp' && text.length >= LEAST_NOTED) this.addSecret(path, text)
      if (isPatients && /^\d{10}$/.test(text)) this.addDigits('patient', path, text)
      else if (isPatients && text.length >= LEAST_NOTED) this.#add(text, { what: path, kind: 'patient', isWord: false })
      return text
    })
  }

  #plantInText(path: string, text: string): string {
    if (path === 'contact' || path === 'recipient.contact') {
      if (!/^\d{10}$/.test(text)) return text
      // A patient is found by the number. Whom a message goes to is found nowhere, so that it can be one of its own.
      const digits = path === 'contact' ? text : `7${randomInt(1e9).toString().padStart(9, '0')}`
      this.addDigits('patient', path, digits)
      return digits
    }
    return text.includes('zqv') ? text : this.plant(path, text)
  }

  /** Tokens and secrets that an answer hands out, and the signatures of its links. */
  noteAnswer(body: unknown): void {
    JSON.stringify(body, (name, value) => {
      if (typeof value !== 'string' || value === '') return value
      if (HANDED_OUT.has(name) && value.length >= LEAST_NOTED) this.addSecret(name, value)
      const signature = /[?&]signature=([\w-]{16,})/.exec(value)?.[1]
      if (signature) this.addSecret('link', signature)
      return value
    })
  }

  /** What there is, by name. */
  names(kind: Canary['kind']): string[] {
    const known = [...this.#forms.values()].flatMap((alike) => [...alike.values()])
    return [...new Set(known.filter((canary) => canary.kind === kind).map(({ what }) => what))]
  }

  /**
   * @param bytes text as it is; bytes so that each is one character
   * @returns what stands there, by name
   */
  foundIn(bytes: string | Buffer, kind?: Canary['kind'], except: string[] = []): string[] {
    const text = typeof bytes === 'string' ? bytes : bytes.toString('latin1')
    const found = new Set<string>()
    for (let at = 0; at < text.length; at++) {
      const alike = this.#forms.get(text.slice(at, at + PREFIX))
      if (!alike) continue
      for (const [form, canary] of alike) {
        if (kind !== undefined && canary.kind !== kind) continue
        if (text.startsWith(form, at) && !(canary.isWord && isPartOfWord(text, at, form.length))) found.add(canary.what)
      }
    }
    return [...found].filter((what) => !except.includes(what)).sort()
  }

  /** @throws when one of them stands in a log line */
  requireNoneIn(lines: string[]): void {
    const found = this.foundIn(lines.join(''))
    if (found.length === 0) return
    const line = lines.find((text) => this.foundIn(text).length > 0)
    throw new Error(`a log line holds ${found.join(', ')}: ${line}`)
  }
}

/** @param change gets each text with its path, and whether it is a patient's */
function mapTexts(body: unknown, change: (path: string, text: string, isPatients: boolean) => string): unknown {
  const visit = (value: unknown, path: string, isBelow: boolean): unknown => {
    const isPatients = isBelow || PATIENT_FIELDS.has(path)
    if (typeof value === 'string') return value === '' ? value : change(path, value, isPatients)
    if (Array.isArray(value)) return value.map((item) => visit(item, `${path}[]`, isPatients))
    if (typeof value !== 'object' || value === null) return value
    const inner = (name: string) => (path === '' ? name : `${path}.${name}`)
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, visit(item, inner(name), isPatients)]))
  }
  return visit(body, '', false)
}

function isPartOfWord(text: string, at: number, length: number): boolean {
  return /[\w.]/.test(text[at - 1] ?? ' ') || /\w/.test(text[at + length] ?? ' ')
}
