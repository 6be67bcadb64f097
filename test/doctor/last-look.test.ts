/**
 * Every suite ends with the doctor: what it would let pass, and that it lets nothing else pass.
 */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { newId } from '../../src/ids.ts'
import { openTestDatabase } from '../support/database.ts'
import { requireSound } from '../support/last-look.ts'
import { LEFT_BEHIND, TOO_LARGE } from '../support/left-behind.ts'

test('a database with something off can not be closed without a word, and one that is sound can', async () => {
  const { database, close } = await openTestDatabase()
  await requireSound(database)
  await database.knex('lanes').insert({ webhook_id: newId(0) })
  await expect(requireSound(database)).rejects.toThrow(/doctor\/last-look\.test\.ts has left:\nlane_without_webhook: /)
  await expect(close()).rejects.toThrow('lane_without_webhook')
})

test('what is known to be left behind names suites that are there', () => {
  const files = [...TOO_LARGE, ...LEFT_BEHIND.flatMap(({ files: named }) => named)]
  expect(files.filter((file) => !existsSync(join(import.meta.dirname, '..', file)))).toEqual([])
})
