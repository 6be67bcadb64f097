import { expect, test } from 'vitest'
import { comparableName, fullName } from '../../src/patients/person-name.ts'

test.each<[string, string | null, string]>([
  ['Asha', 'Rao', 'Asha Rao'],
  ['Asha ', '  Rao ', 'Asha Rao'],
  ['Asha', null, 'Asha'],
  ['Asha', '', 'Asha'],
  ['Asha', '  ', 'Asha'],
  [' ', 'Rao', 'Rao'],
  [' ', null, ' '],
])('%j and %j are %j', (first, last, whole) => {
  expect(fullName(first, last)).toBe(whole)
})

test('names are the same whatever their capitals, outer blanks and how many blanks stand within', () => {
  expect(new Set(['Asha Rao', ' ASHA  rao ', 'asha\u00a0Rao'].map(comparableName)).size).toBe(1)
  expect(comparableName('Asharao')).not.toBe(comparableName('Asha Rao'))
  expect(comparableName(undefined)).toBe('')
})
