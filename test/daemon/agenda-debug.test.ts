import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { expect, test } from 'vitest'

const ROOT = join(import.meta.dirname, '../..')

/** In a process of its own, as the daemon loads it: before Agenda. */
function run(script: string, DEBUG: string): string {
  const code = `
    import './daemon/agenda-debug.ts'
    import { createRequire } from 'node:module'
    const debug = createRequire(import.meta.resolve('agenda'))('debug')
    const log = debug('agenda:job')
    debug.log = (...args) => console.log(...args)
    ${script}`
  return execFileSync(process.execPath, ['--input-type=module', '--eval', code], {
    cwd: ROOT,
    env: { ...process.env, DEBUG },
    encoding: 'utf8',
  })
}

test('a step of a job has one logger, however many jobs there are', () => {
  const same = 'console.log(log.extend("run") === log.extend("run"), log.extend("run") === log.extend("save"))'
  expect(run(same, '')).toBe('true false\n')
})

test('whoever asks for them still reads the lines, each under its step, with the job filled in', () => {
  const lines = run('for (const job of ["a", "b"]) log.extend("run")("job [%s]", job); log.extend("save")("c")', 'agenda:job:run') // prettier-ignore
  expect(lines.trim().split('\n').map((line) => line.replace(/^\S+Z /, ''))).toEqual(['agenda:job:run job [a]', 'agenda:job:run job [b]']) // prettier-ignore
})
