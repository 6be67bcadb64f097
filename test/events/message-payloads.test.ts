import fc from 'fast-check'
import { expect, test } from 'vitest'
import { messageSend, type MessageType, type NewMessage } from '../../src/events/message-payloads.ts'
import { ContractChecker } from '../support/contract-checker.ts'

const contract = new ContractChecker('client.yaml')
const EVENT_ID = '01m7vm63q8aahtnmat708mh7jk'
const RECORD_ID = '01m7vm63q8pywwxhanpv700bdz'
const CORPORATE = '01jwqg5h4029yzse4k8gpdjzy1'
const HOSPITAL = '01jwwmyz40pfpek08wdesy1mdp'
const AT = new Date('2026-11-20T10:15:00.000Z')
const MAX_BYTES = 20_000

function message(fields: Partial<NewMessage> = {}): NewMessage {
  return {
    type: 'report.send',
    subject: {
      kind: 'report',
      id: RECORD_ID,
      accountId: '01jqqqsyh0vzvszvskctnwr22v',
      labId: '01jqqvgz40vzvszvskctnwr22v',
      version: 3,
      integratorId: 'LIMS-1',
      corporateId: CORPORATE,
      doctorId: null,
      hospitalId: HOSPITAL,
    },
    recipient: { contact: '9876543210', name: 'Asha Kulkarni' },
    template: 'report_ready',
    text: 'Dear Asha, your report is ready.',
    variables: { name: 'Asha' },
    attachmentUrl: 'https://api.lab.example.in/files/reports/1?signature=2',
    ...fields,
  }
}

const bodyOf = (sent: NewMessage) => JSON.parse(messageSend(EVENT_ID, sent, AT).body.toString('utf8'))

const SCHEMAS: Record<MessageType, string> = {
  'report.send': 'ReportSendEvent',
  'bill.send': 'BillSendEvent',
  'booking.send': 'BookingSendEvent',
  'phlebotomist.send': 'PhlebotomistSendEvent',
  'quotation.send': 'QuotationSendEvent',
}

test.each(Object.entries(SCHEMAS))('a %s fits its schema and says what it is about', (type, schema) => {
  const body = bodyOf(message({ type: type as MessageType }))
  contract.checkSchema(`#/components/schemas/${schema}`, body)
  expect(body).toMatchObject({ id: `evt_${EVENT_ID}`, type, integratorID: 'LIMS-1' })
  expect(body.data.message).toMatchObject({ kind: type.split('.')[0], messageId: EVENT_ID, version: 3 })
})

test('a message carries all that its receiver needs to send it', () => {
  const { corporateUser, organization, data } = bodyOf(message({ related: { billId: CORPORATE } }))
  expect({ corporateUser, organization }).toEqual({ corporateUser: CORPORATE, organization: HOSPITAL })
  expect(data).toEqual({
    message: {
      messageId: EVENT_ID,
      version: 3,
      kind: 'report',
      recipient: { contact: '9876543210', name: 'Asha Kulkarni' },
      template: 'report_ready',
      text: 'Dear Asha, your report is ready.',
      variables: { name: 'Asha' },
      attachmentUrl: 'https://api.lab.example.in/files/reports/1?signature=2',
      billId: CORPORATE,
      leadId: null,
      reportId: RECORD_ID,
      corporateUser: CORPORATE,
      referredOrganization: null,
      referredHospitalOrganization: HOSPITAL,
    },
  })
})

test('a long text stays whole while shorter variables make room for it', () => {
  const text = '\u0939'.repeat(4096)
  const { data } = bodyOf(message({ text, variables: { text, name: 'Asha' } }))
  expect(data.truncated).toBe(true)
  expect(data.message.text).toBe(text)
  expect(data.message.variables.name).toBe('Asha')
  expect(data.message.variables.text).toHaveLength(500)
})

test('the integrator’s id stays whole while a text of the same length makes room for it', () => {
  const text = '\u0939'.repeat(4096)
  const whole = message({ text })
  whole.subject.integratorId = text
  const { integratorID, data } = bodyOf(whole)
  expect(integratorID).toBe(text)
  expect([data.truncated, data.message.text.length]).toEqual([true, 1000])
})

test('a message never has more than 20 KB and always fits its schema, whatever was sent', () => {
  const text = (maxLength: number) =>
    fc.oneof(
      fc.string({ maxLength, unit: 'binary' }),
      fc
        .constantFrom('"', '\u0001', '\u0939', '\u{1f489}', 'x')
        .map((one) => one.repeat(maxLength).slice(0, maxLength)),
    )
  const sent = fc.record({
    text: text(4096),
    template: text(300),
    name: text(300),
    integratorId: text(4096),
    variables: fc.dictionary(text(100), text(4096), { maxKeys: 40 }),
    attachmentUrl: fc.option(
      fc.constantFrom(4096, 200).map((length) => `https://x.example/${'a'.repeat(length - 18)}`),
    ),
  })
  fc.assert(
    fc.property(sent, ({ name, integratorId, ...fields }) => {
      const whole = message({ ...fields, recipient: { contact: '9876543210', name } })
      whole.subject.integratorId = integratorId
      const { body } = messageSend(EVENT_ID, whole, AT)
      expect(body.length).toBeLessThanOrEqual(MAX_BYTES)
      contract.checkSchema('#/components/schemas/ReportSendEvent', JSON.parse(body.toString('utf8')))
    }),
    { numRuns: 100 },
  )
})
