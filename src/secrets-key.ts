/**
 * Where the key comes from that the stored secrets are encrypted under. For `config.ts`.
 */
import { randomBytes } from 'node:crypto'
import { existsSync, linkSync, readFileSync, unlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { makeFolder } from './make-folder.ts'

/** Development: made once under the data folder, by whichever process comes first. Production: from the environment only. */
export function readSecretsKey(
  value: string | undefined,
  production: boolean,
  dataDir: string,
  faults: string[],
): Buffer {
  if (value !== undefined) {
    const key = Buffer.from(value, 'base64')
    if (key.length < 32) faults.push('SECRETS_KEY must be at least 32 random bytes in base64: openssl rand -base64 32')
    return key
  }
  if (production) {
    faults.push('SECRETS_KEY must be set in production, at least 32 random bytes in base64: openssl rand -base64 32')
    return Buffer.alloc(32)
  }
  const file = join(dataDir, 'secrets.key')
  try {
    makeFolder(dataDir, 0o700)
    if (!existsSync(file)) {
      // Written aside and linked: another process that starts now sees no file or a whole one, never half a key.
      const draft = `${file}.${process.pid}`
      writeFileSync(draft, `${randomBytes(32).toString('base64')}\n`, { mode: 0o600 })
      try {
        linkSync(draft, file)
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
      } finally {
        unlinkSync(draft)
      }
    }
    const key = Buffer.from(readFileSync(file, 'utf8').trim(), 'base64')
    if (key.length < 32) faults.push(`${file} is no key: remove it, and everything encrypted under it is lost`)
    return key
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    faults.push(`DATA_DIR: ${dataDir} can't be written (${code}): choose a folder that can`)
    return Buffer.alloc(32)
  }
}
