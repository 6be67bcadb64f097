import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { CONTROLS } from '../../scripts/controls-list.ts'
import { MUTANTS } from '../../scripts/mutants-list.ts'
import { RULE_MUTANTS } from '../../scripts/mutants-of-rules.ts'

test.each([...CONTROLS, ...MUTANTS, ...RULE_MUTANTS])(
  '$name: the code that it breaks is there, once',
  ({ file, edits }) => {
    const code = readFileSync(join(import.meta.dirname, '../..', file), 'utf8')
    expect(edits.map(([from]) => code.split(from).length - 1)).toEqual(edits.map(() => 1))
  },
)
