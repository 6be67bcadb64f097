/**
 * The negative control of `make bench-neighbours`: a measurement that can't fail proves nothing. Copies the code, takes out
 * what keeps neighbours apart, and expects the copy to fail.
 */
import { spawn } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { once } from 'node:events'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { onInterrupt } from '../processes.ts'

const COPIED = ['daemon', 'db', 'scripts', 'src', 'openapi', 'package.json']

/** The budget of the healthy ones is everybody's, and no webhook is ever slow. */
export const CHANGES: { file: string; from: string; to: string }[] = [
  {
    file: 'daemon/request-gates.ts',
    from: 'this.#gates = { healthy: newGate(sizes.healthy), retry: newGate(sizes.retry) }',
    to: 'const one = newGate(sizes.healthy)\n    this.#gates = { healthy: one, retry: one }',
  },
  { file: 'daemon/lane-window.ts', from: 'const SLOW_AFTER_MS = 1000', to: 'const SLOW_AFTER_MS = Infinity' },
]

/** What one budget is used up by: answers that are good and late. A webhook that fails is held to two requests elsewhere. */
const MODE = 'slow'

/** @returns whether the copy failed, as it must */
export async function runControl(args: string[]): Promise<boolean> {
  const root = resolve(import.meta.dirname, '../..')
  const copy = mkdtempSync(join(tmpdir(), 'lis-control-'))
  try {
    for (const name of COPIED) cpSync(join(root, name), join(copy, name), { recursive: true })
    symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'))
    for (const { file, from, to } of CHANGES) {
      const text = readFileSync(join(copy, file), 'utf8')
      if (text.split(from).length !== 2) throw new Error(`${file} has changed: the control does not fit it any more`)
      writeFileSync(join(copy, file), text.replace(from, to))
    }
    const script = join('scripts', 'bench', 'neighbours.ts')
    const child = spawn(process.execPath, [script, '--modes', MODE, ...args], {
      cwd: copy,
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const ended = onInterrupt(async () => {
      child.kill('SIGTERM')
      await once(child, 'close')
      rmSync(copy, { recursive: true, force: true })
    })
    let output = ''
    child.stdout!.on('data', (data: Buffer) => {
      output += data
      process.stdout.write(data)
    })
    await once(child, 'close')
    ended()
    // On a machine that is busy with other things the quiet row misses as well, and then the other says nothing.
    const proves =
      /^\| quiet .*\| ok \|$/m.test(output) && new RegExp(`^\\| ${MODE} .*\\| MISSED \\|$`, 'm').test(output)
    console.log(
      proves ? '\ncontrol: failed, as it must' : '\ncontrol: it had to fail in this mode, and in this mode alone',
    )
    return proves
  } finally {
    rmSync(copy, { recursive: true, force: true })
  }
}
