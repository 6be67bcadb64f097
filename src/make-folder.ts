import { existsSync, mkdirSync } from 'node:fs'
import { dirname } from 'node:path'

/**
 * With the folders above it, where they are missing. Node's own `recursive` tries for ever below a folder that takes none, such as
 * /proc: the one above is there, and making the next one says that it is not.
 * @param mode of the last one
 * @throws what the system says of the first that can't be made
 */
export function makeFolder(folder: string, mode = 0o777): void {
  if (existsSync(folder)) return
  const above = dirname(folder)
  if (above !== folder) makeFolder(above)
  try {
    mkdirSync(folder, { mode })
  } catch (error) {
    // Another process that starts now.
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST' || !existsSync(folder)) throw error
  }
}
