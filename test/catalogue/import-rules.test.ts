import { describe, expect, test } from 'vitest'
import { readRow, type ImportKind } from '../../src/catalogue/import-rules.ts'
import { newId } from '../../src/ids.ts'

const read = (kind: ImportKind, cells: Record<string, string>) => readRow(kind, { line: 7, cells })
const faultOf = (kind: ImportKind, cells: Record<string, string>) => read(kind, cells).fault

describe('a row of tests', () => {
  const SOUND = { code: 'CBC', name: 'Complete blood count', cost: '350' }

  test('is read with what it has, and says whether the file has a column for service ids', () => {
    expect(read('tests', SOUND)).toMatchObject({
      ...{ line: 7, itemKind: 'test', code: 'CBC', name: 'Complete blood count', price: 350 },
      ...{ serviceId: null, setsServiceId: false, fault: null },
    })
    expect(read('tests', { ...SOUND, serviceID: '' })).toMatchObject({ serviceId: null, setsServiceId: true })
    expect(read('tests', { ...SOUND, serviceID: ' S-1 ' })).toMatchObject({ serviceId: 'S-1', setsServiceId: true })
  })

  test.each([
    ['0', 0],
    ['349.5', 349.5],
    ['9999999999.99', 9999999999.99],
  ])('costs %s', (cost, price) => expect(read('tests', { ...SOUND, cost }).price).toBe(price))

  test.each(['-1', '1.005', '10000000000', '1e3', '0x10', '1,50', '٣٥٠', '.5', '5.', 'free', '+1'])(
    'that costs %s is at fault',
    (cost) => {
      const row = read('tests', { ...SOUND, cost })
      expect([row.fault, row.code, row.price]).toEqual([expect.stringMatching(/^cost must be an amount/), null, null])
    },
  )

  test.each(['code', 'name', 'cost'])('without %s says so, also where the cell is blank', (column) => {
    const { [column as 'code']: _, ...others } = SOUND
    expect(faultOf('tests', others)).toBe(`${column} is missing`)
    expect(faultOf('tests', { ...SOUND, [column]: ' \t ' })).toBe(`${column} is missing`)
  })

  test('counts characters as people do, and takes no control character inside', () => {
    expect(faultOf('tests', { ...SOUND, name: '😀'.repeat(200) })).toBeNull()
    expect(faultOf('tests', { ...SOUND, name: '😀'.repeat(201) })).toBe('name must have at most 200 characters')
    for (const control of ['\u0000', '\n', '\r', '\u007f', '\u0085', '\u2028']) {
      expect(faultOf('tests', { ...SOUND, name: `a${control}b` })).toMatch(/^name must not have line breaks/)
    }
  })

  test('reads no column that is not its own, nor one of every object', () => {
    expect(faultOf('tests', Object.create(SOUND))).toBe('code is missing')
    expect(read('tests', { ...SOUND, price: '1', tests: 'A' })).toMatchObject({ price: 350, testCodes: [] })
  })
})

describe('a row of packages', () => {
  const SOUND = { code: 'FEVER', name: 'Fever', total: '900.00', tests: 'CBC; ESR ;;CBC' }

  test('has its tests in order, each once', () => {
    expect(read('packages', SOUND)).toMatchObject({ itemKind: 'package', price: 900, testCodes: ['CBC', 'ESR'] })
  })

  test('has between one and a hundred of them', () => {
    const many = (count: number) => Array.from({ length: count }, (_, n) => `T${n}`).join(';')
    expect(faultOf('packages', { ...SOUND, tests: ' ; ' })).toBe('tests is missing')
    expect(faultOf('packages', { ...SOUND, tests: many(100) })).toBeNull()
    expect(faultOf('packages', { ...SOUND, tests: many(101) })).toBe('tests must have at most 100 codes')
    expect(faultOf('packages', { ...SOUND, tests: `CBC;${'x'.repeat(65)}` })).toBe(
      'tests must have at most 64 characters',
    )
  })
})

describe('a row of prices', () => {
  const partyId = newId(0)

  test('prices exactly one test or package', () => {
    expect(read('party_prices', { partyId, test: 'CBC', price: '300' })).toMatchObject({ partyId, itemKind: 'test', code: 'CBC', price: 300 }) // prettier-ignore
    expect(read('party_prices', { partyId, package: 'FEVER', price: '1' })).toMatchObject({ itemKind: 'package', code: 'FEVER' }) // prettier-ignore
    const either = 'exactly one of test and package must have a code'
    expect(faultOf('party_prices', { partyId, price: '1' })).toBe(either)
    expect(faultOf('party_prices', { partyId, test: 'CBC', package: 'FEVER', price: '1' })).toBe(either)
  })

  test('is for a party that can be one, and says which it was not', () => {
    expect(faultOf('party_prices', { partyId: "' OR 1", test: 'CBC', price: '1' })).toMatch(/^unknown party /)
  })

  test('or for a rate list', () => {
    const row = { rateListType: 'Gold', test: 'CBC', price: '12.34' }
    expect(read('rate_list_prices', row)).toMatchObject({
      rateListType: 'Gold',
      partyId: null,
      price: 12.34,
      fault: null,
    })
    expect(faultOf('rate_list_prices', { ...row, rateListType: '' })).toBe('rateListType is missing')
  })
})
