/**
 * From the cells of a file to the rows of an import, and what is wrong with a row by itself. Pure.
 */
import { clipped } from '../errors.ts'
import type { components } from '../generated/operator.ts'
import { isIdShaped } from '../ids.ts'

export type ImportKind = components['schemas']['ImportKind']
export type ImportState = components['schemas']['Import']['state']

/** As many as one transaction can make hold within a request's time for the database, with room to spare. */
export const MAX_IMPORT_ROWS = 25_000

/** The tests of all packages of an import, likewise. On MySQL 9, the slower one, twice as many leave no room. */
export const MAX_IMPORT_CONTENTS = 100_000

/** Of a package, like everywhere in this API. */
const MAX_CONTENTS = 100

export interface SentRow {
  /** In the file; names the row in the report. */
  line: number
  cells: Record<string, string>
}

/** A row as it is kept until the import ends. What its kind does not have is null. */
export interface ImportRow {
  line: number
  /** What the row is about: what it makes, or what it prices. */
  itemKind: 'test' | 'package'
  code: string | null
  name: string | null
  price: number | null
  serviceId: string | null
  /** False where the file has no such column: then the test's serviceID stays. */
  setsServiceId: boolean
  partyId: string | null
  rateListType: string | null
  /** Of a package, in order. */
  testCodes: string[]
  /** What is wrong with the row; null: nothing, by itself. */
  fault: string | null
}

type Fields = Omit<ImportRow, 'line' | 'fault'>

const EMPTY: Fields = {
  itemKind: 'test',
  code: null,
  name: null,
  price: null,
  serviceId: null,
  setsServiceId: false,
  partyId: null,
  rateListType: null,
  testCodes: [],
}

/** Says what is wrong with a cell; caught by `readRow` alone. */
class CellFault extends Error {}

/** The first fault of the row is the one that is kept. */
export function readRow(kind: ImportKind, { line, cells }: SentRow): ImportRow {
  try {
    return { ...EMPTY, ...READERS[kind](cells), line, fault: null }
  } catch (error) {
    if (!(error instanceof CellFault)) throw error
    return { ...EMPTY, line, fault: error.message }
  }
}

const READERS: Record<ImportKind, (cells: SentRow['cells']) => Partial<Fields>> = {
  tests: (cells) => ({
    code: text(cells, 'code', 64),
    name: text(cells, 'name', 200),
    price: amount(cells, 'cost'),
    serviceId: optionalText(cells, 'serviceID', 64),
    setsServiceId: Object.hasOwn(cells, 'serviceID'),
  }),
  packages: (cells) => ({
    itemKind: 'package',
    code: text(cells, 'code', 64),
    name: text(cells, 'name', 200),
    price: amount(cells, 'total'),
    testCodes: codes(cells, 'tests'),
  }),
  party_prices: (cells) => {
    const partyId = text(cells, 'partyId', 64)
    if (!isIdShaped(partyId)) throw new CellFault(`unknown party ${clipped(partyId)}`)
    return { partyId, ...pricedItem(cells), price: amount(cells, 'price') }
  },
  rate_list_prices: (cells) => ({
    rateListType: text(cells, 'rateListType', 200),
    ...pricedItem(cells),
    price: amount(cells, 'price'),
  }),
}

function pricedItem(cells: SentRow['cells']): Pick<Fields, 'itemKind' | 'code'> {
  const test = optionalText(cells, 'test', 64)
  const pack = optionalText(cells, 'package', 64)
  if ((test === null) === (pack === null)) throw new CellFault('exactly one of test and package must have a code')
  return test === null ? { itemKind: 'package', code: pack } : { itemKind: 'test', code: test }
}

function text(cells: SentRow['cells'], column: string, maxCharacters: number): string {
  const value = optionalText(cells, column, maxCharacters)
  if (value === null) throw new CellFault(`${column} is missing`)
  return value
}

function optionalText(cells: SentRow['cells'], column: string, maxCharacters: number): string | null {
  const value = (Object.hasOwn(cells, column) ? cells[column]! : '').trim()
  if (value === '') return null
  if ([...value].length > maxCharacters) throw new CellFault(`${column} must have at most ${maxCharacters} characters`)
  if (/[\u0000-\u001f\u007f-\u009f\u2028\u2029]/.test(value)) {
    throw new CellFault(`${column} must not have line breaks or other control characters`)
  }
  return value
}

/** As the column holds it: DECIMAL(12,2). */
function amount(cells: SentRow['cells'], column: string): number {
  const value = text(cells, column, 64)
  if (!/^\d{1,10}(\.\d{1,2})?$/.test(value)) {
    throw new CellFault(`${column} must be an amount with at most two decimals, such as 350 or 349.50`)
  }
  return Number(value)
}

/** Codes separated by semicolons; given twice, once. */
function codes(cells: SentRow['cells'], column: string): string[] {
  const value = (Object.hasOwn(cells, column) ? cells[column]! : '').trim()
  const all = [...new Set(value.split(';').map((code) => code.trim()))].filter(Boolean)
  if (all.length === 0) throw new CellFault(`${column} is missing`)
  if (all.length > MAX_CONTENTS) throw new CellFault(`${column} must have at most ${MAX_CONTENTS} codes`)
  for (const code of all) text({ [column]: code }, column, 64)
  return all
}
