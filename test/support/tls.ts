import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { makeSureOfDevTls, type DevTls } from '../../scripts/dev-tls.ts'

/** A certificate authority of its own in a folder that `remove` deletes. */
export async function createTestTls(): Promise<DevTls & { remove(): void }> {
  const folder = mkdtempSync(join(tmpdir(), 'lis-tls-'))
  const tls = await makeSureOfDevTls(folder, Date.now())
  return { ...tls, remove: () => rmSync(folder, { recursive: true, force: true }) }
}
