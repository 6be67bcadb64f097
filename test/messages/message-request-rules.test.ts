import { expect, test } from 'vitest'
import type { Entry } from '../../src/crm/entry-rules.ts'
import type { DomainError } from '../../src/errors.ts'
import { messageOfRequest, requireSoundMessage, type MessageRequest } from '../../src/messages/message-request-rules.ts'

const request = (fields: Partial<MessageRequest> = {}) =>
  ({ type: 'lead.send', labID: 'lab-1', template: 't', text: 'Hello', ...fields }) as MessageRequest

const entry = (fields: Partial<Entry> = {}) =>
  ({ id: 'e', contact: '9000000001', firstName: 'Asha', lastName: 'Kulkarni', ...fields }) as Entry

test('without an entry somebody must be named; with one its parties and its integrator are its own', () => {
  expect(() => requireSoundMessage(request())).toThrow('required where no leadId is sent')
  expect(() => requireSoundMessage(request({ leadId: 'e' }))).not.toThrow()
  const body = request({ leadId: 'e', integratorID: 'i', corporateUser: 'c' })
  expect(() => requireSoundMessage(body)).toThrow(/integratorID is taken from the entry/)
  try {
    requireSoundMessage(body)
  } catch (error) {
    expect((error as DomainError).extras.fields?.map(({ field }) => field)).toEqual(['integratorID', 'corporateUser'])
  }
})

test('its attachment is a link with a host', () => {
  const withLink = (attachmentUrl: string) => () => requireSoundMessage(request({ leadId: 'e', attachmentUrl }))
  for (const good of [
    'https://files.example.in/1.pdf?expires=5&signature=a%2Fb#page=2',
    'https://[2001:db8::1]:8443',
  ]) {
    expect(withLink(good)).not.toThrow()
  }
  const hostless = ['https://', 'https:///1.pdf', 'https://?a', 'https://:443/', 'https://\\\\files.example.in/1.pdf']
  for (const bad of [...hostless, 'https://files example.in/', 'https://a:b', 'https://files.example.in/\n1.pdf']) {
    expect(withLink(bad), bad).toThrow('attachmentUrl must be an absolute URL')
  }
})

test('it goes to the recipient that is named, else to the entry’s contact under its name', () => {
  const recipientOf = (body: MessageRequest, of?: Entry) => messageOfRequest(body, 'm', 'a', of).recipient
  const recipient = { contact: '9000000009', name: 'Ravi' }
  expect(recipientOf(request({ leadId: 'e', recipient }), entry())).toEqual(recipient)
  expect(recipientOf(request({ leadId: 'e' }), entry())).toEqual({ contact: '9000000001', name: 'Asha Kulkarni' })
  expect(recipientOf(request({ leadId: 'e' }), entry({ lastName: null })).name).toBe('Asha')
  expect(() => recipientOf(request({ leadId: 'e' }), entry({ contact: null }))).toThrow('the entry has no contact')
})

test('one without an entry is routed by the parties that it names', () => {
  const body = request({ recipient: { contact: '9', name: 'x' }, corporateUser: 'c', referredOrganization: 'd' })
  expect(messageOfRequest(body, 'm', 'a', undefined).subject).toMatchObject({
    ...{ kind: 'message', id: 'm', accountId: 'a', labId: 'lab-1', integratorId: null },
    ...{ corporateId: 'c', doctorId: 'd', hospitalId: null },
  })
})
