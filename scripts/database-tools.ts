/**
 * The programs that back MariaDB up and restore it. What runs the service does without them, so they are had only by who asks:
 * the machine's own, or Debian's package, unpacked under a folder and never installed.
 */
import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { availablePackage, findProgram, librariesIn, run } from './database-server.ts'
import { StartFault } from './processes.ts'

/** `mariadb` itself comes with the server's packages. */
const PACKAGE = 'mariadb-client'
const NAMES = ['mariadb', 'mariadb-dump', 'mariadb-binlog'] as const

export type DatabaseTools = Record<(typeof NAMES)[number], string> & { env: NodeJS.ProcessEnv }

const BY_HAND = `run \`sudo apt-get install -y ${PACKAGE}\``

/**
 * @param folder where they are unpacked, and found the next time
 * @throws StartFault with what to install by hand
 */
export async function findDatabaseTools(folder: string, onProgress: (line: string) => void): Promise<DatabaseTools> {
  const found = find(folder)
  if (found) return found
  if (!existsSync('/usr/bin/apt-get'))
    throw new StartFault(`${NAMES.join(', ')} are missing: install MariaDB's client programs`)
  onProgress(`downloading ${PACKAGE} (Debian package), to be unpacked into ${folder} …`)
  await unpack(folder)
  const unpacked = find(folder)
  if (!unpacked)
    throw new StartFault(
      `${PACKAGE} was unpacked into ${folder} and does not have all of ${NAMES.join(', ')}: ${BY_HAND}`,
    )
  return unpacked
}

function find(folder: string): DatabaseTools | undefined {
  const unpacked = (name: string) => [join(folder, 'usr', 'bin', name)].find(existsSync)
  const paths = NAMES.map((name) => findProgram(name) ?? unpacked(name))
  if (paths.some((path) => path === undefined)) return undefined
  const libraries = librariesIn(folder)
  const env = libraries.length > 0 ? { ...process.env, LD_LIBRARY_PATH: libraries.join(':') } : process.env
  return { ...Object.fromEntries(NAMES.map((name, n) => [name, paths[n]!])), env } as DatabaseTools
}

/** Made aside and renamed: a kill half-way leaves no folder that looks whole. */
async function unpack(folder: string): Promise<void> {
  mkdirSync(dirname(folder), { recursive: true })
  const draft = mkdtempSync(`${folder}.new-`)
  try {
    // Both: on a machine without the server's packages `mariadb` is missing too.
    const packages = [availablePackage(PACKAGE), availablePackage('mariadb-client-core')]
    const download = await run('apt-get', ['-q', 'download', ...packages], draft)
    const files = readdirSync(draft).filter((name) => name.endsWith('.deb'))
    if (!download.ok || files.length === 0) {
      throw new StartFault(
        `apt-get could not download ${PACKAGE}: run \`apt-get update\` as root, or ${BY_HAND}\n${download.output.trim()}`,
      )
    }
    for (const file of files) {
      const unpacked = await run('dpkg-deb', ['-x', join(draft, file), draft])
      if (!unpacked.ok) throw new StartFault(`${file} can't be unpacked into ${draft}: ${unpacked.output.trim()}`)
      rmSync(join(draft, file))
    }
    rmSync(folder, { recursive: true, force: true })
    renameSync(draft, folder)
  } catch (error) {
    rmSync(draft, { recursive: true, force: true })
    throw error
  }
}
