import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Account } from '../../src/accounts/accounts-repository.ts'
import type { Lab } from '../../src/catalogue/labs-repository.ts'
import { startTestApp, type TestApp } from '../support/app.ts'
import {
  bookingBody,
  buildAccount,
  buildLab,
  buildOperatorKey,
  buildParty,
  leadBody,
  newContact,
  type TestAccount,
} from '../support/builders.ts'

let app: TestApp
let account: TestAccount
let lab: Lab
let token: string

beforeAll(async () => {
  app = await startTestApp()
  account = await buildAccount(app)
  lab = await buildLab(app, account)
  token = await buildOperatorKey(app, { role: 'staff' })
})
afterAll(() => app.close())

const recipient = { contact: '9876543210', name: 'Asha Kulkarni' }

function messageBody(fields: Record<string, unknown> = {}) {
  return { labID: lab.id, type: 'quotation.send', recipient, template: 'quotation', text: 'Dear Asha, …', ...fields }
}

function send(body: unknown, of: Account = account, key = token) {
  return app.call('POST', `/operator/accounts/${of.id}/messages`, { token: key, body })
}

async function payloadOf(messageId: string) {
  const row = await app.database.knex('event_bodies').where({ event_id: messageId }).first()
  return JSON.parse(row.body.toString('utf8'))
}

async function createEntry(body: Record<string, unknown>): Promise<string> {
  const answer = await app.call('POST', '/client/crm/lead/create', { token: account.token, body })
  return answer.body.leadId
}

test('a message is recorded with its event, its row and its trace in the audit, and the daemons are told', async () => {
  const hints = app.hints()
  const { status, body } = await send(messageBody({ variables: { price: '350' }, integratorID: 'Q-1' }))
  expect(status).toBe(201)
  expect(body).toEqual({
    messageId: body.messageId,
    eventId: `evt_${body.messageId}`,
    labID: lab.id,
    type: 'quotation.send',
    state: 'offered',
    createdAt: app.clock.now().toISOString(),
  })
  const { knex } = app.database
  expect(await knex('messages').where({ event_id: body.messageId }).first()).toMatchObject({
    account_id: account.id,
    lab_id: lab.id,
    state: 'offered',
  })
  expect(await knex('unrouted_events').where({ event_id: body.messageId }).first()).toMatchObject({ is_message: 1 })
  const [audit] = await knex('audit_entries').where({ operation: 'recordMessage' })
  expect(JSON.parse(audit.targets)).toEqual({ labID: lab.id, messageId: body.messageId })
  expect(app.hints()).toBe(hints + 1)
  const payload = await payloadOf(body.messageId)
  expect(payload).toMatchObject({ type: 'quotation.send', labID: lab.id, integratorID: 'Q-1' })
  expect(payload.data.message).toMatchObject({
    recipient,
    variables: { price: '350' },
    leadId: null,
    attachmentUrl: null,
  })
})

describe('about an entry', () => {
  test('it has the entry’s parties, integratorID, contact and name', async () => {
    const corporate = await buildParty(app, account, 'corporate')
    const hospital = await buildParty(app, account, 'hospital')
    const contact = newContact()
    const parties = { corporateUser: corporate.id, referredHospitalOrganization: hospital.id }
    const entry = bookingBody(lab, { ...parties, contact, integratorID: 'CRM-77', last_name: 'Kulkarni' })
    const leadId = await createEntry(entry)
    const { status, body } = await send(messageBody({ type: 'booking.send', leadId, recipient: undefined }))
    expect(status).toBe(201)
    const payload = await payloadOf(body.messageId)
    expect(payload).toMatchObject({ integratorID: 'CRM-77', corporateUser: corporate.id, organization: hospital.id })
    expect(payload.data.message).toMatchObject({ leadId, recipient: { contact, name: 'Asha Kulkarni' }, ...parties })
    expect(await app.database.knex('events').where({ id: body.messageId }).first()).toMatchObject({
      subject_id: leadId,
      corporate_id: corporate.id,
      hospital_id: hospital.id,
    })
  })

  test('without a contact it needs a recipient', async () => {
    const leadId = await createEntry(leadBody(lab, { contact: undefined, email: 'asha@example.in' }))
    const refused = await send(messageBody({ leadId, recipient: undefined }))
    expect(refused.status).toBe(400)
    expect(refused.body.error).toMatchObject({ code: 'recipient_required', fields: [{ field: 'recipient' }] })
    const { body } = await send(messageBody({ leadId }))
    expect((await payloadOf(body.messageId)).data.message).toMatchObject({ leadId, recipient })
  })
})

describe('it is refused, and nothing is recorded,', () => {
  test.each([
    ['without a recipient or an entry', { recipient: undefined }, 'recipient'],
    ['with an unknown lab', { labID: '01jqqvgz4029yzse4k8gpdjzy1' }, 'labID'],
    ['with an unknown entry', { leadId: '01jqqvgz4029yzse4k8gpdjzy1' }, 'leadId'],
    ['with an unknown party', { corporateUser: '01jqqvgz4029yzse4k8gpdjzy1' }, 'corporateUser'],
    ['with an entry and an integratorID', { leadId: '01jqqvgz4029yzse4k8gpdjzy1', integratorID: 'x' }, 'integratorID'],
    ['as an event that is no message', { type: 'lead.created' }, 'type'],
    ['with an attachment that is not https', { attachmentUrl: 'http://files.example.in/1.pdf' }, 'attachmentUrl'],
    ['with an attachment that has no host', { attachmentUrl: 'https://' }, 'attachmentUrl'],
    ['with a variable that is no text', { variables: { price: 350 } }, 'variables.price'],
    ['to what is no telephone number', { recipient: { contact: '98765', name: 'Asha' } }, 'recipient.contact'],
  ])('%s', async (_, fields, field) => {
    const before = await app.database.knex('messages').count({ n: '*' })
    const { status, body } = await send(messageBody(fields))
    expect(status).toBe(400)
    expect(body.error.fields[0].field).toBe(field)
    expect(await app.database.knex('messages').count({ n: '*' })).toEqual(before)
  })

  test('for a lab or an entry of another account, or by a key of another account', async () => {
    const other = await buildAccount(app)
    const otherLab = await buildLab(app, other)
    expect((await send(messageBody({ labID: otherLab.id }))).status).toBe(400)
    const leadId = await createEntry(leadBody(lab))
    expect((await send(messageBody({ labID: otherLab.id, leadId }), other)).body.error.code).toBe('unknown_lead')
    const bound = await buildOperatorKey(app, { role: 'staff', accountId: other.id })
    expect((await send(messageBody(), account, bound)).status).toBe(404)
    expect((await send(messageBody(), account, account.token)).status).toBe(401)
  })
})
