import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { binlogPosition, differing } from '../../scripts/crash/backup-tools.ts'

const folder = mkdtempSync(join(tmpdir(), 'lis-backup-tools-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

test('a dump says from where the binary log goes on; one that does not is refused', async () => {
  const dump = join(folder, 'lis.sql')
  writeFileSync(
    dump,
    "-- MariaDB dump\n-- CHANGE MASTER TO MASTER_LOG_FILE='binlog.000002', MASTER_LOG_POS=4711;\nCREATE\n",
  )
  expect(await binlogPosition(dump)).toEqual({ file: 'binlog.000002', at: 4711 })
  writeFileSync(dump, '-- MariaDB dump\n')
  await expect(binlogPosition(dump)).rejects.toThrow('does not say where the binary log stood')
})

test('tables differ by their rows, and by not being there at all', () => {
  const wanted = new Map([['entries', '1'], ['events', '2'], ['gone', '3']]) // prettier-ignore
  const got = new Map([['entries', '1'], ['events', '9'], ['new', '4']]) // prettier-ignore
  const different = differing(wanted, got)
  expect([[...different].sort(), different.tables]).toEqual([['events', 'gone', 'new'], 4])
})
