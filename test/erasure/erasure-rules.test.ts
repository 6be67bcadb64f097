import { expect, test } from 'vitest'
import { hasEmailOf, isOfSubject, remainsOf, subjectOf } from '../../src/erasure/erasure-rules.ts'

test('a request must name somebody: a contact, an e-mail, a patient or records; a list without any names nobody', () => {
  for (const body of [{}, { name: 'Asha' }, { leadIds: [] }]) {
    expect(() => subjectOf(body)).toThrow('the request names nobody')
  }
  for (const body of [{ contact: '9000000001' }, { email: 'a@example.in' }, { patientId: 'p' }, { billIds: ['b'] }]) {
    expect(() => subjectOf(body)).not.toThrow()
  }
})

test('a name narrows a contact or an e-mail, and is refused beside ids alone', () => {
  expect(() => subjectOf({ name: 'Asha', leadIds: ['l'] })).toThrow('must be sent with contact or email')
  expect(subjectOf({ name: ' Asha  ', contact: '9000000001', email: ' A@Example.IN ' })).toMatchObject({
    name: 'asha',
    email: 'a@example.in',
  })
})

test('with a name only that person’s records of a shared contact are theirs; without one all are', () => {
  const named = subjectOf({ contact: '9000000001', name: 'Asha Kulkarni' })
  for (const name of ['ASHA Kulkarni', ' Asha  Kulkarni ', 'asha\tkulkarni'])
    expect(isOfSubject(named, name)).toBe(true)
  expect(isOfSubject(named, 'Ravi Kulkarni')).toBe(false)
  expect(isOfSubject(subjectOf({ contact: '9000000001' }), 'Ravi')).toBe(true)
})

test('a name or an e-mail that is blank is refused: it would stand for everybody', () => {
  for (const body of [{ contact: '9000000001', name: '  ' }, { contact: '9000000001', email: ' ' }, { email: '  ' }]) {
    expect(() => subjectOf(body)).toThrow(/^(name|email) must not be blank$/)
  }
})

test('a name that was sent narrows the e-mail too; that of a patient who was named does not', () => {
  const sent = subjectOf({ contact: '9000000001', email: 'a@example.in', name: 'Asha Kulkarni' })
  expect(hasEmailOf(sent, ' A@example.in', 'Asha K')).toBe(false)
  expect(hasEmailOf({ ...sent, emailName: null }, ' A@example.in', 'Asha K')).toBe(true)
  // As an earlier version has kept it.
  expect(hasEmailOf({ ...sent, emailName: undefined }, 'a@example.in', 'Asha K')).toBe(false)
  for (const email of [null, '', 'b@example.in']) expect(hasEmailOf(sent, email, 'Asha Kulkarni')).toBe(false)
})

test('everything that stays has its reason, and what ends by itself says when', () => {
  const remains = remainsOf({ payloadRetentionDays: 30, logRetentionDays: 77 })
  for (const { what, why } of remains) expect([what.length > 5, why.length > 10]).toEqual([true, true])
  expect(remains.find(({ what }) => what.startsWith('delivery log'))?.days).toBe(77)
})
