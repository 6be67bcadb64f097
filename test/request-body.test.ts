import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Lab } from '../src/catalogue/labs-repository.ts'
import { startTestApp, type TestApp } from './support/app.ts'
import { buildAccount, buildLab, buildTest, leadBody, type TestAccount } from './support/builders.ts'

let app: TestApp
let account: TestAccount
let lab: Lab

beforeAll(async () => {
  app = await startTestApp()
  account = await buildAccount(app)
  lab = await buildLab(app, account)
})
afterAll(() => app.close())

const createLead = (options: Parameters<TestApp['call']>[2]) =>
  app.call('POST', '/client/crm/lead/create', { token: account.token, ...options })

describe('the body', () => {
  const nested = (levels: number) => `${'{"a":'.repeat(levels - 1)}{}${'}'.repeat(levels - 1)}`

  test.each([
    ['malformed JSON', '{"branchID": '],
    ['nothing at all', ''],
    ['an array', '[]'],
    ['null', 'null'],
    ['a string that holds an object', '"{\\"branchID\\":\\"x\\"}"'],
    ['a number', '12'],
    ['5,000 levels', nested(5000)],
    ['invalid UTF-8', Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d])],
  ])('is 400 when it is %s', async (_, rawBody) => {
    const answer = await createLead({ rawBody })
    expect(answer.status).toBe(400)
    expect(answer.body.error.details).toMatch(/^(the body |a must not be nested)/)
  })

  test('is 413 over 256 KB, whether or not its length is announced', async () => {
    const body = JSON.stringify({ padding: 'x'.repeat(256 * 1024) })
    expect((await createLead({ rawBody: body })).status).toBe(413)
    const headers = { 'transfer-encoding': 'chunked' }
    expect((await createLead({ rawBody: body, headers })).status).toBe(413)
  })

  test.each([
    ['notes', { notes: 'x'.repeat(4097) }],
    ['tests.1.test', { tests: [{}, { test: 'x'.repeat(4097) }] }],
    ['customFields.a.1', { customFields: { a: ['', 'x'.repeat(4097)] } }],
    ['tests', { tests: Array.from({ length: 101 }, () => ({ test: 'x' })) }],
    ['unknown', { unknown: JSON.parse(nested(33)) }],
    ['notes', { notes: '\ud800' }],
  ])('is 400 naming %s when a limit is broken there', async (field, fields) => {
    const answer = await createLead({ body: leadBody(lab, fields) })
    expect(answer.status).toBe(400)
    expect(answer.body.error.fields).toEqual([{ field, message: expect.any(String) }])
    expect(answer.body.error.details).toContain(field)
  })

  test.each([
    ['a long text', '"photo":"' + 'x'.repeat(5000) + '"'],
    ['a long list, and one within', `"history":[${'[1],'.repeat(150)}[${'1,'.repeat(150)}1]]`],
    ['U+0000 in text and name', '"a\\u0000b":"\\u0000","c":{"\\u0000":1}'],
    ['half a surrogate pair', '"x":"\\ud800"'],
    ['an infinite number', '"x":[1e999]'],
    ['a name twice', '"x":1,"x":{"y":1,"y":2}'],
    [
      'fields of lists in another case',
      '"Tests":[{"a":1,"a":2}],"tests":[{"test":"TEST","Cost":1e999,"note":"\\u0000"}]',
    ],
  ])('has %s where no field is known: the same as if it were not there', async (_, fields) => {
    const { id } = await buildTest(app, lab)
    const rawBody = JSON.stringify(leadBody(lab)).replace('{', `{${fields.replace('TEST', id)},`)
    expect((await createLead({ rawBody })).status).toBe(200)
    // A webhook's and an operation's that takes none.
    const asked = { token: account.token, rawBody: `{${fields.replace('TEST', id)}}` }
    const subscribed = await app.call('POST', '/client/events/subscribe', asked)
    expect([subscribed.status, subscribed.body.error.details]).toEqual([
      400,
      expect.not.stringMatching(/characters|items|U\+0000|Unicode|finite|once/),
    ])
  })

  test('may have 32 levels, 100 items and 4,096 characters, counted as characters', async () => {
    const fields = {
      unknown: JSON.parse(nested(31)),
      list: Array.from({ length: 100 }, () => 1),
      notes: '😀'.repeat(4096),
    }
    expect((await createLead({ body: leadBody(lab, fields) })).status).toBe(200)
  })

  test('is 400 when a number is infinite', async () => {
    const rawBody = JSON.stringify(leadBody(lab)).replace('}', ',"totalAmount":1e999}')
    const answer = await createLead({ rawBody })
    expect(answer.body.error.fields).toEqual([{ field: 'totalAmount', message: 'must be a finite number' }])
  })

  test('reaches nobody by __proto__ keys', async () => {
    const rawBody = JSON.stringify(leadBody(lab)).replace(
      '}',
      ',"__proto__":{"polluted":1,"phase":"booking"},"constructor":{"prototype":{"polluted":1}}}',
    )
    const answer = await createLead({ rawBody })
    expect([answer.status, answer.body.phase]).toEqual([200, 'lead'])
    expect(({} as Record<string, unknown>).polluted).toBeUndefined()
  })

  test.each([
    ['first_name', (text: string) => text.replace('{', '{"first_name":"Asha",')],
    ['first_name', (text: string) => text.replace('{', '{"first\\u005fname":"Bela",')],
    [
      'tests.1.cost',
      (text: string) => text.replace('{', '{"x":{"a":1,"a":2},"tests":[{},{"cost":1,"b":"}","cost":[]}],'),
    ],
    ['customFields.a.b', (text: string) => text.replace('{', '{"customFields":{"a":{"b":1,"b":2}},')],
  ])('is 400 when a field is there twice, whatever it says: %s', async (field, spoil) => {
    const answer = await createLead({ rawBody: spoil(JSON.stringify(leadBody(lab))) })
    expect([answer.status, answer.body.error.fields]).toEqual([400, [{ field, message: 'must be there only once' }]])
  })

  test.each([
    ['last_name', { last_name: 'a\0b' }],
    ['customFields.a\ufffdb', { customFields: { 'a\0b': 1 } }],
    ['tests.0.test', { tests: [{ test: '\0' }] }],
  ])('is 400 with U+0000 in %s', async (field, fields) => {
    const answer = await createLead({ body: leadBody(lab, fields) })
    expect([answer.status, answer.body.error.fields?.[0].field]).toEqual([400, field])
  })

  test('is 400 when customFields has __proto__, which is no custom field', async () => {
    const rawBody = JSON.stringify(leadBody(lab)).replace('}', ',"customFields":{"__proto__":{"polluted":1}}}')
    const answer = await createLead({ rawBody })
    expect([answer.status, answer.body.error.fields]).toEqual([
      400,
      [{ field: 'customFields.__proto__', message: 'is unknown' }],
    ])
  })

  test('takes no notice of __proto__ in unknown fields, whatever they are called', async () => {
    const fields =
      ',"customFields.a":{"__proto__":1},"unknown":{"customFields":{"__proto__":1}},"variables":{"__proto__":1}}'
    expect((await createLead({ rawBody: JSON.stringify(leadBody(lab)).replace('}', fields) })).status).toBe(200)
  })

  test.each([
    'application/json',
    'application/json; charset=utf-8',
    'Application/JSON;charset="UTF-8"',
    'application/json; charset=utf8',
    'application/json; profile="x"',
    'application/json;',
    'application/json; profile="a,b"',
    'application/json; profile="a;b, c\\"; charset=latin1"; charset="utf-8"',
    'application/json; profile="; charset=latin1"',
    'application/json; charset="utf-8"; profile=","',
    'application/json; charset=us-ascii',
    'application/json; charset="US-ASCII"; profile=x',
  ])('is taken as %s', async (contentType) => {
    const answer = await createLead({ body: leadBody(lab), headers: { 'content-type': contentType } })
    expect(answer.status).toBe(200)
  })

  test('is taken with an empty Content-Encoding, which names none', async () => {
    const answer = await createLead({ body: leadBody(lab), headers: { 'content-encoding': '' } })
    expect(answer.status).toBe(200)
  })

  test.each([
    ['content-type', 'text/plain'],
    ['content-type', 'application/x-www-form-urlencoded'],
    ['content-type', 'application/json; charset=utf-16'],
    ['content-type', 'application/json; version=1; charset=latin1'],
    ['content-type', 'application/json; charset="utf-8x"'],
    ['content-type', 'application/json; charset=us-ascii-x'],
    ['content-type', 'application/json; charset=ascii'],
    ['content-type', 'application/json; charset="utf,8"'],
    ['content-type', 'application/json; charset=",utf-8"'],
    ['content-type', 'application/json; profile="a,b"; charset=latin1'],
    ['content-type', 'application/json; profile="a\\"; charset=latin1'],
    ['content-type', 'application/json; profile="a,b'],
    ['content-type', 'application/json; profile="a", text/plain; x="b"'],
    ['content-type', 'application/json, application/json'],
    ['content-type', 'application/jsonx'],
    ['content-type', ''],
    ['content-encoding', 'gzip'],
    ['content-encoding', ','],
  ])('is 415 with %s: %s', async (name, value) => {
    expect((await createLead({ body: leadBody(lab), headers: { [name]: value } })).status).toBe(415)
  })

  test.each(['text/plain', 'application/json', ''])(
    'of a DELETE may be missing with content type "%s"',
    async (type) => {
      const answer = await app.call('DELETE', '/client/events/deleteEvent/x', {
        token: account.token,
        query: { labID: lab.id },
        headers: type === '' ? {} : { 'content-type': type },
      })
      expect(answer.status).toBe(404)
    },
  )

  describe('that is not asked for', () => {
    const reactivate = (rawBody: string, contentType = 'application/json') =>
      app.call('PATCH', `/client/events/reactivateEvent/${lab.id}`, {
        token: account.token,
        query: { labID: lab.id },
        headers: { 'content-type': contentType },
        rawBody,
      })

    test('is ignored where it is a JSON object, also of a GET', async () => {
      expect((await reactivate('{"anything":["goes"]}')).status).toBe(404)
      const get = { token: account.token, headers: { 'content-type': 'text/plain' }, rawBody: 'x' }
      expect((await app.call('GET', '/client/labs', get)).status).toBe(200)
    })

    test.each([
      ['larger than 256 KB', JSON.stringify({ pad: 'x'.repeat(300_000) }), 'application/json', 413],
      ['of another content type', '<x/>', 'text/xml', 415],
      ['no JSON', '{', 'application/json', 400],
      ['no object', '[]', 'application/json', 400],
      ['nested more than 32 levels deep', nested(33), 'application/json', 400],
    ])('is refused where it is %s', async (_, rawBody, contentType, status) => {
      expect((await reactivate(rawBody, contentType)).status).toBe(status)
    })
  })

  test('has each of its faults named, without the values', async () => {
    const answer = await createLead({ body: { phase: 'booking', contact: '+91 98220', tests: [{ cost: 0.001 }] } })
    expect(answer.body.error.fields).toEqual(
      expect.arrayContaining([
        { field: 'branchID', message: 'is required' },
        { field: 'bookingType', message: 'is required' },
        { field: 'contact', message: 'must be exactly 10 digits, without symbols or spaces' },
        { field: 'tests.0.test', message: 'is required' },
        { field: 'tests.0.cost', message: 'must have at most two decimals' },
      ]),
    )
    expect(JSON.stringify(answer.body)).not.toContain('98220')
  })

  test('has its values taken as they are: a number in a string field is 400', async () => {
    const answer = await createLead({ body: leadBody(lab, { first_name: 7 }) })
    expect(answer.body.error.details).toBe('first_name must be a string')
  })
})
