import { expect, test } from 'vitest'
import { readCatalogueFile } from '../../scripts/operator/catalogue-file.ts'

const read = (text: string) => readCatalogueFile(Buffer.from(text), 'tests', ',')

test.each<[what: string, text: string, rows: number[], refused: number[]]>([
  ['one kind of line breaks', 'code,name,cost\nA,One,10\nB,two\nC,three,3\n', [2, 4], [3]],
  ['Windows ones', 'code,name,cost\r\nA,One,10\r\nB,two\r\nC,three,3\r\n', [2, 4], [3]],
  ['old Macintosh ones', 'code,name,cost\rA,One,10\rB,two\rC,three,3', [2, 4], [3]],
  ['a Windows one among others', 'code,name,cost\nA,One,10\r\nB,two\nC,three,3\n', [2, 4], [3]],
  ['Windows ones in the head alone', 'code,name,cost\r\nA,One,10\nB,two,20\n', [2, 3], []],
  ['a cell with a line break', 'code,name,cost\r\nA,"a\r\nb",10\r\nB,two\r\nC,three,3\r\n', [3, 5], [4]],
  ['a quote out of place', 'code,name,cost\r\nA,a"b",10\r\nB,two,2\r\n', [3], [2]],
])('each line of a file is told by its number: %s', (_what, text, rows, refused) => {
  const file = read(text)
  expect([file.rows.map(({ line }) => line), file.refused.map(({ line }) => line)]).toEqual([rows, refused])
})
