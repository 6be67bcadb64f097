import { expect, test } from 'vitest'
import { CatalogueLists } from '../../src/catalogue/catalogue-lists.ts'
import { Representation } from '../../src/representation.ts'

test('of empty lists no more are kept than the memory that they take allows, the last used ones', async () => {
  const lists = new CatalogueLists()
  let made = 0
  const get = (n: number) =>
    lists.get(['tests', 'lab', String(n)], '', async () => {
      made += 1
      return Representation.of({ tests: [] })
    })
  for (let n = 0; n < 60_000; n++) await get(n)
  await get(59_999)
  expect(made).toBe(60_000)
  await get(0)
  expect(made).toBe(60_001)
})
