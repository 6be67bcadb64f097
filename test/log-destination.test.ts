/** A log that can't be written holds nobody up, and ends nobody. */
import { spawn } from 'node:child_process'
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'

const src = (name: string) => JSON.stringify(join(import.meta.dirname, '..', 'src', name))
const LINES = 20_000
const hasFull = existsSync('/dev/full')
const BEGIN = `
  import { closeSync, openSync } from 'node:fs'
  import { setTimeout as sleep } from 'node:timers/promises'
  import { createLogger } from ${src('logger.ts')}
  import { endOnCrash } from ${src('crash-line.ts')}
  import { createLogDestination } from ${src('log-destination.ts')}
  const log = createLogger('api', 'info')
  endOnCrash(log)
`

let folder: string
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'lis-log-'))
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))

/** @returns its exit code, when it has ended by itself */
async function run(body: string, stderr: number | 'pipe'): Promise<number | null> {
  const child = spawn(process.execPath, ['--input-type=module', '-e', BEGIN + body], {
    stdio: ['ignore', 'ignore', stderr],
  })
  const timer = setTimeout(() => child.kill('SIGKILL'), 20_000)
  const code = await new Promise<number | null>((resolve) => child.on('exit', resolve))
  clearTimeout(timer)
  child.stderr?.destroy()
  return code
}

test.skipIf(!hasFull)(
  `where nothing can be written the process goes on, and ends when it wants to${hasFull ? '' : ' (there is no /dev/full here)'}`,
  async () => {
    const full = openSync('/dev/full', 'w')
    const code = await run(
      `for (let n = 0; n < 30; n++) { log.info('request.completed'); await sleep(10) }; process.exit(7)`,
      full,
    )
    closeSync(full)
    expect(code).toBe(7)
  },
)

test('a reader that has stopped to read keeps it from nothing', async () => {
  const code = await run(
    `for (let n = 0; n < ${LINES}; n++) log.info('request.completed'); await sleep(300); process.exit(7)`,
    'pipe',
  )
  expect(code).toBe(7)
})

test('all that can be written is, also what is logged last', async () => {
  const file = join(folder, 'log')
  const fd = openSync(file, 'w')
  expect(
    await run(`for (let n = 0; n < ${LINES}; n++) log.info('request.completed', { rows: n }); process.exit(7)`, fd),
  ).toBe(7)
  closeSync(fd)
  const rows = readFileSync(file, 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line).rows)
  expect(rows.sort((a, b) => a - b)).toEqual(Array.from({ length: LINES }, (_, n) => n))
})

test('what could not be written is counted when lines can be written again', async () => {
  const file = JSON.stringify(join(folder, 'again'))
  const code = await run(
    `const fd = openSync(${file}, 'w')
     const own = createLogDestination(fd, (dropped) => process.exit(dropped))
     closeSync(fd)
     for (let n = 0; n < 3; n++) own.write('lost\\n')
     await sleep(100)
     if (openSync(${file}, 'w') !== fd) process.exit(100)
     for (;;) { own.write('kept\\n'); await sleep(50) }`,
    'pipe',
  )
  // The first; the others waited.
  expect(code).toBe(1)
  expect(readFileSync(join(folder, 'again'), 'utf8')).toMatch(/^lost\nlost\nkept\n/)
})
