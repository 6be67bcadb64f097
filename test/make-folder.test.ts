import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { makeFolder } from '../src/make-folder.ts'

test('makes what is missing above it, and nothing where it is there', () => {
  const root = mkdtempSync(join(tmpdir(), 'lis-folder-'))
  try {
    const folder = join(root, 'a', 'b', 'c')
    makeFolder(folder)
    makeFolder(folder)
    expect(existsSync(folder)).toBe(true)
    writeFileSync(join(root, 'file'), '')
    expect(() => makeFolder(join(root, 'file', 'x'))).toThrow('ENOTDIR')
    expect(() => makeFolder(join(root, 'file'))).toThrow('EEXIST')
  } finally {
    rmSync(root, { recursive: true })
  }
})

test('says so at once where a folder takes none', () => {
  expect(() => makeFolder('/proc/none/of/these')).toThrow(/ENOENT|EACCES|EROFS|ENOTSUP/)
})
