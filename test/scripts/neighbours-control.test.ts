import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { CHANGES } from '../../scripts/bench/neighbours-control.ts'

test.each(CHANGES)('what the control takes out of $file is there, once: $from', ({ file, from }) => {
  const code = readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8')
  expect(code.split(from)).toHaveLength(2)
})
