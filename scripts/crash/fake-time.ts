/**
 * Real processes under a clock that a test moves (libfaketime): `apt-get install libfaketime`. It jumps and never runs faster:
 * timers are real, and a clock that runs ahead of them shows faults that nobody has.
 */
import { existsSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { homedir, tmpdir } from 'node:os'
import { join } from 'node:path'

/** For programs with threads: both of ours have them. */
const LIBRARY = 'libfaketimeMT.so.1'

/** @returns undefined where it is neither installed nor fetched by `test/servers/libfaketime.sh` */
export function findFakeTime(): string | undefined {
  const { LIS_FAKETIME_CACHE, XDG_CACHE_HOME } = process.env
  const fetched = LIS_FAKETIME_CACHE || join(XDG_CACHE_HOME || join(homedir(), '.cache'), 'lis-faketime')
  const roots = ['/usr/lib', '/usr/local/lib', join(fetched, 'root', 'usr', 'lib')].filter(existsSync)
  const folders = roots.flatMap((root) => [root, ...readdirSync(root).map((name) => join(root, name))])
  return folders.map((folder) => join(folder, 'faketime', LIBRARY)).find(existsSync)
}

/** One clock for any number of processes. */
export class FakeTime {
  readonly #folder = mkdtempSync(join(tmpdir(), 'lis-faketime-'))
  readonly #file = join(this.#folder, 'offset')
  readonly #library: string
  #offsetSeconds = 0

  constructor(library: string) {
    this.#library = library
    this.set(0)
  }

  /** For the processes that go by it. Monotonic clocks stay real, as in a machine whose clock is set. */
  get env(): Record<string, string> {
    return {
      LD_PRELOAD: this.#library,
      FAKETIME_TIMESTAMP_FILE: this.#file,
      // Read at each look at the clock: a jump is seen at once, and by all.
      FAKETIME_NO_CACHE: '1',
      FAKETIME_DONT_FAKE_MONOTONIC: '1',
      DONT_FAKE_MONOTONIC: '1',
    }
  }

  get offsetSeconds(): number {
    return this.#offsetSeconds
  }

  /** Written aside and renamed: nobody reads half a number. */
  set(offsetSeconds: number): void {
    this.#offsetSeconds = offsetSeconds
    const draft = `${this.#file}.new`
    writeFileSync(draft, `${offsetSeconds < 0 ? '-' : '+'}${Math.abs(offsetSeconds)}\n`)
    renameSync(draft, this.#file)
  }

  /** Runs what starts processes without a say in their environment. */
  async around<T>(work: () => Promise<T>): Promise<T> {
    const before = Object.keys(this.env).map((name) => [name, process.env[name]] as const)
    Object.assign(process.env, this.env)
    try {
      return await work()
    } finally {
      for (const [name, value] of before) {
        if (value === undefined) delete process.env[name]
        else process.env[name] = value
      }
    }
  }

  remove(): void {
    rmSync(this.#folder, { recursive: true, force: true })
  }
}
