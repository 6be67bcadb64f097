/**
 * One `make run` per data folder. The file names the supervisor and its children, so that the next start after a kill -9
 * tells a live run from a dead one and ends what outlived it.
 */
import { linkSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { endProcess, identify, isAlive, StartFault, type ProcessIdentity } from './processes.ts'

/** Of the file's shape. A later one may name what this code would not end. */
const FILE_VERSION = 1

interface RunState {
  version: number
  supervisor: ProcessIdentity
  children: ProcessIdentity[]
}

export interface RunLock {
  /** To be ended by the next start, should we die without a word. */
  addChild(pid: number): void
  release(): void
}

/** A survivor gets as long as in an orderly stop. */
const END_CHILD_MS = 20_000

/** @throws StartFault when another run lives on this folder */
export async function acquireRunLock(dataDir: string, onProgress: (line: string) => void): Promise<RunLock> {
  const file = join(dataDir, 'run.json')
  const draft = `${file}.${process.pid}`
  const state: RunState = { version: FILE_VERSION, supervisor: identify(process.pid)!, children: [] }
  const write = () => writeFileSync(draft, JSON.stringify(state), { mode: 0o600 })
  for (;;) {
    try {
      write()
      // Linked, not written in place: whoever looks sees no file or a whole one, and only one of two starters gets it.
      linkSync(draft, file)
      break
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
      await clearDeadRun(file, onProgress)
    } finally {
      rmSync(draft, { force: true })
    }
  }
  return {
    addChild: (pid) => {
      const child = identify(pid)
      if (!child) return
      state.children.push(child)
      write()
      renameSync(draft, file)
    },
    release: () => rmSync(file, { force: true }),
  }
}

async function clearDeadRun(file: string, onProgress: (line: string) => void): Promise<void> {
  const text = readText(file)
  const state = parse(text)
  if ((versionIn(text) ?? FILE_VERSION) > FILE_VERSION) {
    throw new StartFault(
      `${file} was written by a newer version of this service: start that one, or remove the file when nothing of it runs any more`,
    )
  }
  if (state && isAlive(state.supervisor)) throw alreadyRuns(state.supervisor)
  for (const child of state?.children.filter(isAlive) ?? []) {
    onProgress(`ending a process that outlived the last run (${child.pid}) …`)
    await endProcess(child, END_CHILD_MS)
  }
  const removed = `${file}.dead-${process.pid}`
  try {
    renameSync(file, removed)
  } catch (error) {
    // Another starter cleared it as well.
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return
    throw error
  }
  const taken = readText(removed)
  if (taken !== text) {
    // Between our look and our move another starter had already put its own there: give it back.
    renameSync(removed, file)
    throw alreadyRuns(parse(taken)?.supervisor)
  }
  rmSync(removed, { force: true })
}

function alreadyRuns(supervisor: ProcessIdentity | undefined): StartFault {
  return new StartFault(
    `another \`make run\` (process ${supervisor?.pid}) uses this data folder: stop it, or set another DATA_DIR`,
  )
}

function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}

function versionIn(text: string): number | undefined {
  try {
    return (JSON.parse(text) as RunState).version
  } catch {
    return undefined
  }
}

/** @returns undefined for what is no state: a power cut can leave an empty file */
function parse(text: string): RunState | undefined {
  try {
    const state = JSON.parse(text) as RunState
    return typeof state.supervisor.pid === 'number' && Array.isArray(state.children) ? state : undefined
  } catch {
    return undefined
  }
}
