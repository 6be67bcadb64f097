import { existsSync, mkdirSync, statSync } from 'node:fs'
import { dirname } from 'node:path'

/**
 * With the folders above it, where they are missing. Node's own `recursive` tries for ever below a folder that takes none, such as
 * /proc: the one above is there, and making the next one says that it is not.
 * @param mode of the last one
 * @throws what the system says of the first that can't be made
 */
export function makeFolder(folder: string, mode = 0o777): void {
  if (isFolder(folder)) return
  const above = dirname(folder)
  if (!existsSync(above)) makeFolder(above)
  try {
    mkdirSync(folder, { mode })
  } catch (error) {
    // Another process that starts now has made it.
    if (!isFolder(folder)) throw error
  }
}

function isFolder(path: string): boolean {
  try {
    return statSync(path).isDirectory()
  } catch {
    return false
  }
}
