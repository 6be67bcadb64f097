import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'

let folder: string

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'lis-stop-'))
  writeFileSync(
    join(folder, 'service.ts'),
    `import { onStopRequest } from ${JSON.stringify(join(import.meta.dirname, '../src/stop-request.ts'))}
     // One that hears nothing must not stay behind.
     setTimeout(() => process.exit(9), 20_000)
     onStopRequest((why) => {
       console.log(why)
       process.exit(0)
     })
     console.log('started')`,
  )
  writeFileSync(join(folder, 'Makefile'), `service:\n\t@exec '${process.execPath}' service.ts\n`)
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))

/** @returns what the recipe printed when only its make got the signal */
async function toldByMake(signal: NodeJS.Signals): Promise<string[]> {
  const make = spawn('make', ['--no-print-directory', 'service'], {
    cwd: folder,
    stdio: ['ignore', 'pipe', 'ignore'],
    // A signal to the whole group would hide what make does with its own.
    detached: true,
  })
  let printed = ''
  make.stdout.setEncoding('utf8').on('data', (text: string) => (printed += text))
  await expect.poll(() => printed).toBe('started\n')
  make.kill(signal)
  // The recipe holds the pipe: its end is the recipe's.
  await once(make.stdout, 'close')
  return printed.trim().split('\n')
}

test.each([
  ['SIGTERM', 'SIGTERM'],
  ['SIGINT', 'make was told to end'],
  ['SIGHUP', 'make was told to end'],
  ['SIGKILL', 'make is gone'],
] as const)('%s to the make of a service alone ends the service', { timeout: 30_000 }, async (signal, why) => {
  expect(await toldByMake(signal)).toEqual(['started', why])
})

test('a service under nohup goes on when its terminal is closed, and ends when it is told to', async () => {
  const make = spawn('nohup', ['make', '--no-print-directory', 'service'], {
    cwd: folder,
    stdio: ['ignore', 'pipe', 'ignore'],
    detached: true,
  })
  let printed = ''
  make.stdout.setEncoding('utf8').on('data', (text: string) => (printed += text))
  await expect.poll(() => printed).toBe('started\n')
  // As the terminal does: to all of the group.
  process.kill(-make.pid!, 'SIGHUP')
  await new Promise((resolve) => setTimeout(resolve, 1000))
  expect(printed).toBe('started\n')
  process.kill(-make.pid!, 'SIGTERM')
  await once(make.stdout, 'close')
  expect(printed).toBe('started\nSIGTERM\n')
})
