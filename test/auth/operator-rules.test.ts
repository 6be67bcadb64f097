import { expect, test } from 'vitest'
import { reaches, requireAccountOf, requireLabOf, requireRole, requireUnbound } from '../../src/auth/operator-rules.ts'

const account = {
  id: 'own',
  name: 'Arogya Care',
  mode: 'catch_all',
  timeZone: 'Asia/Kolkata',
  adminEmail: 'admin@lab.example.in',
  sandbox: false,
  createdAt: new Date('2026-11-20T10:00:00Z'),
} as const
const key = (role: string, accountId: string | null = null) => ({ id: 'key', role, accountId })

test.each([
  ['admin', 'admin', true],
  ['admin', 'staff', true],
  ['staff', 'staff', true],
  ['staff', 'admin', false],
  ['other', 'staff', false],
] as const)('a key with the role %s may do what takes %s: %s', (role, needed, may) => {
  const call = () => requireRole(key(role), needed)
  if (may) expect(call).not.toThrow()
  else expect(call).toThrow(`this takes an operator key with the role ${needed}`)
})

test('only a key for all accounts may make others', () => {
  expect(() => requireUnbound(key('admin'))).not.toThrow()
  expect(() => requireUnbound(key('admin', 'own'))).toThrow('bound to one account')
})

test('a key for all accounts reaches each, a bound one its own alone', () => {
  expect([reaches(key('staff'), 'own'), reaches(key('staff', 'own'), 'own')]).toEqual([true, true])
  expect(reaches(key('staff', 'other'), 'own')).toBe(false)
})

test('an account that does not exist and one out of reach are refused alike', () => {
  expect(requireAccountOf(key('staff', 'own'), account)).toBe(account)
  for (const [operator, found] of [
    [key('admin'), undefined],
    [key('admin', 'other'), account],
  ] as const) {
    expect(() => requireAccountOf(operator, found)).toThrow('account not found')
  }
})

test('a lab that does not exist and one out of reach are refused alike', () => {
  const { createdAt, adminEmail } = account
  const lab = { id: 'lab', accountId: 'own', name: 'Lab', contact: '1', adminEmail, active: true, createdAt }
  expect(requireLabOf(key('staff', 'own'), lab)).toBe(lab)
  expect(() => requireLabOf(key('staff'), undefined)).toThrow('lab not found')
  expect(() => requireLabOf(key('staff', 'other'), lab)).toThrow('lab not found')
})
