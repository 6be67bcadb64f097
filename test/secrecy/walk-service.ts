/**
 * Everything that the service can be asked for, once at least, with something of a patient in every field that takes it.
 */
import fc from 'fast-check'
import { expect, vi } from 'vitest'
import { EVENT_TYPES } from '../../src/events/event-types.ts'
import { publicEventId } from '../../src/ids.ts'
import { FuzzWorld, requestOtp } from '../fuzz/fuzz-world.ts'
import { OperationRunner } from '../fuzz/operation-runs.ts'
import { client, operator } from '../support/app.ts'
import { buildAccount, buildLab, buildOperatorKey, buildPatient, newContact } from '../support/builders.ts'
import type { ContractChecker } from '../support/contract-checker.ts'
import type { Given } from '../support/contract-arbitraries.ts'
import { buildOperatorWorld, DELIVERY_CALLS, KEEPING_CALLS, type OperatorWorld } from '../support/operator-calls.ts'
import { STAFF_CALLS } from '../support/staff-calls.ts'
import { PATIENT_FIELDS } from '../support/canaries.ts'
import type { RealService } from './real-service.ts'

/** Valid requests of each operation, and such with a fault: of these there are many kinds. */
const VALID = 2
const FAULTY = { client: 6, operator: 2 }
const SEED = 20261121
const PATIENCE = { timeout: 30_000, interval: 50 }
const STAFF_AND_LAB = { ...KEEPING_CALLS, ...DELIVERY_CALLS, ...STAFF_CALLS }

/** Of a patient, and in no call of the tables. */
const FURTHER_FIELDS: Record<string, object> = {
  recordMessage: { variables: { patient: 'Asha' }, attachmentUrl: 'https://files.example.in/report/' },
  createBill: { lastName: 'Shaikh' },
}

export async function walkService(service: RealService): Promise<void> {
  const { app } = service
  const token = await buildOperatorKey(app)
  const world = await buildOperatorWorld(app, token)
  const { down } = await subscribeReceivers(world, service)
  const fuzzWorld = await FuzzWorld.create(app)
  await actAsLab(world)
  await writeNormally(service, token)
  await runContract(service, fuzzWorld, client)
  await runContract(service, fuzzWorld, operator)
  await loseTheWay(service, world)
  await logInWrongly(service, world)
  await waitForMails(service, down)
  await redeliver(service, world, down)
  await vi.waitFor(() => expect(callsOf(service, '/v1/traces')).toBeGreaterThan(2), PATIENCE)
}

/** Every event of the world's account to an endpoint that takes it, and to one that never does. */
async function subscribeReceivers(world: OperatorWorld, { app, receiver }: RealService): Promise<{ down: string }> {
  const { token, account, lab, party } = world
  const create = async (endpoint: string, fields: object) => {
    const body = { labID: lab.id, events: EVENT_TYPES, endpoint, ...fields }
    const answer = await app.call('POST', `/operator/accounts/${account.id}/webhooks`, { token, body })
    expect(answer.status).toBe(201)
    return answer.body.webhook.webhookId as string
  }
  await create(`${receiver.url}/ok`, { corporateUser: party.id })
  return { down: await create(`${receiver.url}/down`, {}) }
}

async function actAsLab(world: OperatorWorld): Promise<void> {
  const { app, token } = world
  for (const { operationId, method } of operator.operations) {
    const make = STAFF_AND_LAB[operationId]
    if (!make) continue
    const { path, ...call } = await make(world)
    const more = FURTHER_FIELDS[operationId]
    const body = more ? { ...(call.body as object), ...more } : call.body
    const answer = await app.call(method, path, { token, ...call, body })
    expect([200, 201], `${operationId}: ${JSON.stringify(answer.body)}`).toContain(answer.status)
    // A link to a file, as whoever gets it opens it.
    for (const [link] of JSON.stringify(answer.body ?? '').matchAll(/https?:\/\/127[^"]+signature=[\w-]+/g))
      await fetch(link)
  }
}

/** What a sandbox says comes to no gateway: a message of an account that is none, and has no webhook. */
async function writeNormally(service: RealService, token: string): Promise<void> {
  const { app } = service
  const account = await buildAccount(app)
  const lab = await buildLab(app, account)
  const recipient = { contact: newContact(), name: 'Asha' }
  const body = { labID: lab.id, type: 'quotation.send', recipient, template: 'camp', text: 'A camp near Asha' }
  const answer = await app.call('POST', `/operator/accounts/${account.id}/messages`, { token, body })
  expect(answer.status).toBe(201)
  await vi.waitFor(() => expect(callsOf(service, '/messages')).toBeGreaterThan(0), PATIENCE)
}

async function runContract(service: RealService, world: FuzzWorld, contract: ContractChecker): Promise<void> {
  const canary = (what: string) => fc.constant(null).map(() => service.canaries.plant(what, 'Asha '))
  const texts = [...PATIENT_FIELDS].filter((field) => !/contact|attachmentUrl|customFields|variables/.test(field))
  const given: Given = Object.fromEntries(texts.map((field) => [field, canary(field)]))
  const runner = new OperationRunner(world, contract, given)
  for (const operation of contract.operations) {
    // What changes something on the operator's side was called with what it needs.
    const valid = await runner.runValid(operation, operation.operationId in STAFF_AND_LAB ? 0 : VALID, SEED)
    const faulty = await runner.runFaulty(operation, contract === client ? FAULTY.client : FAULTY.operator, SEED)
    const faults = Object.keys({ ...valid.statuses, ...faulty.statuses }).filter((status) => Number(status) >= 500)
    expect([operation.operationId, faults]).toEqual([operation.operationId, []])
  }
}

/** A patient's number and name where no operation is, and in queries. */
async function loseTheWay({ app, canaries }: RealService, { account, token }: OperatorWorld): Promise<void> {
  const contact = newContact()
  canaries.addDigits('patient', 'contact', contact)
  const name = canaries.plant('name in a path')
  await app.call('GET', `/client/patients/${name}`, { query: { contact } })
  await app.call('GET', `/operator/accounts/${account.id}/otp-lock`, { token, query: { contact } })
  await app.call('GET', `/operator/accounts/${account.id}/patients`, { token, query: { contact } })
  await app.call('GET', '/client/labs', { token: account.token, query: { contact, access_token: account.token } })
  await app.call('GET', '/client/labs', {
    token: `${account.token}x`,
    headers: { 'x-request-id': `${name} ${contact}` },
  })
}

async function logInWrongly({ app }: RealService, { account }: OperatorWorld): Promise<void> {
  const { contact } = await buildPatient(app, account)
  const { otp, otpToken } = await requestOtp(app, account, contact)
  const wrong = String((Number(otp) + 1) % 1_000_000).padStart(6, '0')
  for (const tried of [wrong, `${otp}x`]) {
    const body = { otp: tried, otpToken }
    expect((await app.call('POST', '/client/patient/verifyLoginOTP', { token: account.token, body })).status).toBe(401)
  }
}

/** The one that never takes anything is warned of and deleted. The mail server refuses the first mail, and that one waits. */
async function waitForMails({ app, smtp }: RealService, webhookId: string): Promise<void> {
  const { knex } = app.database
  const refused = () => knex('mails').where('tries', '>', 0).first('id')
  await vi.waitFor(async () => expect(await refused()).toBeDefined(), PATIENCE)
  smtp.refusing = false
  const kinds = () => knex('mails').where({ webhook_id: webhookId }).orderBy('kind').pluck('kind')
  await vi.waitFor(async () => expect(await kinds()).toEqual(['deletion', 'warning']), PATIENCE)
  const subjects = () => smtp.mails.map(({ raw }) => /^Subject: (Webhook \w+)/im.exec(raw)?.[1])
  await vi.waitFor(() => expect(new Set(subjects())).toEqual(new Set(['Webhook failing', 'Webhook deleted'])), PATIENCE)
}

/** Reactivated, it gets a copy by hand, which fails, too. */
async function redeliver({ app, receiver }: RealService, { account, token }: OperatorWorld, webhookId: string) {
  const base = `/operator/accounts/${account.id}`
  expect((await app.call('POST', `${base}/webhooks/${webhookId}/reactivate`, { token })).status).toBe(200)
  const { event_id } = await app.database.knex('attempts').where({ webhook_id: webhookId }).first('event_id')
  const sent = receiver.requests.length
  const path = `${base}/deliveries/${webhookId}/${publicEventId(event_id)}/redeliver`
  expect((await app.call('POST', path, { token, body: { allowSecondMessage: true } })).status).toBeLessThan(300)
  await vi.waitFor(() => expect(receiver.requests.length).toBeGreaterThan(sent), PATIENCE)
}

export function callsOf({ gateways }: RealService, path: string): number {
  return gateways.calls.filter((call) => call.path === path).length
}
