/**
 * No regular expression of the code or of the contracts takes more than linear time: each is proved to backtrack little, or,
 * where the prover gives up, attacked with strings made of its own letters.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { isSafePattern } from 'redos-detector'
import ts from 'typescript'
import { afterAll, expect, test } from 'vitest'
import { parse } from 'yaml'
import { monotonicMs } from '../../src/clock.ts'

const ROOT = join(import.meta.dirname, '../..')
const FOLDERS = ['src', 'daemon', 'db', 'scripts']
/** What runs while the service does: none of its patterns is put together from parts. */
const SHIPPED = /^(src|daemon|db)\//
const CONTRACTS = ['client.yaml', 'operator.yaml']

interface Pattern {
  source: string
  flags: string
  /** The first place where it stands. */
  place: string
}

const dynamic: string[] = []

function patternsOfCode(): Pattern[] {
  const files = FOLDERS.flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.ts') && !name.startsWith('generated/'))
      .map((name) => `${folder}/${name}`),
  )
  return files.flatMap((path) => {
    const found: Pattern[] = []
    const file = ts.createSourceFile(path, readFileSync(join(ROOT, path), 'utf8'), ts.ScriptTarget.ES2024, true)
    const visit = (node: ts.Node): void => {
      const place = `${path}:${file.getLineAndCharacterOfPosition(node.getStart()).line + 1}`
      if (ts.isRegularExpressionLiteral(node)) {
        const end = node.text.lastIndexOf('/')
        found.push({ source: node.text.slice(1, end), flags: node.text.slice(end + 1), place })
      }
      const isMade = ts.isNewExpression(node) || ts.isCallExpression(node)
      if (isMade && node.expression.getText() === 'RegExp' && SHIPPED.test(path)) dynamic.push(place)
      ts.forEachChild(node, visit)
    }
    visit(file)
    return found
  })
}

function patternsOfContracts(): Pattern[] {
  return CONTRACTS.flatMap((name) => {
    const found: Pattern[] = []
    const walk = (value: unknown): void => {
      if (typeof value !== 'object' || value === null) return
      for (const [key, inner] of Object.entries(value)) {
        if (key === 'pattern' && typeof inner === 'string') found.push({ source: inner, flags: 'u', place: name })
        else walk(inner)
      }
    }
    walk(parse(readFileSync(join(ROOT, 'openapi', name), 'utf8')))
    return found
  })
}

/** The first place of each. */
const patterns = [
  ...new Map(
    [...patternsOfCode(), ...patternsOfContracts()].reverse().map((one) => [`/${one.source}/${one.flags}`, one]),
  ).values(),
]

/** Any input makes it go back so often at most, however long it is. */
function isProved({ source, flags }: Pattern): boolean {
  return isSafePattern(source, {
    unicode: /[uv]/.test(flags),
    caseInsensitive: flags.includes('i'),
    dotAll: flags.includes('s'),
    multiLine: flags.includes('m'),
    timeout: 5000,
  }).safe
}

const ATTACK_LENGTH = 30_000
/** A quadratic pattern takes some 400 ms for such a string, a linear one less than a millisecond. */
const SLOW_MS = 120
const TRIES = 3
const TIMEOUT_MS = 120_000
const LETTERS = ['a', 'A', '0', '1', ' ', '\t', '\n', '.', '-', '/', ':', '"', "'", '<', '%', '=', 'é']
const MOST_LETTERS = 26

/** @returns the beginning of a string that takes long, or undefined */
function attack({ source, flags }: Pattern): string | undefined {
  const pattern = new RegExp(source, flags.replace(/[gy]/g, ''))
  const literals = source.match(/[A-Za-z0-9 ":;=#/%.-]{2,}/g) ?? []
  const own = [...source.replace(/\\[bBdDsSwWtnr]|[()[\]{}|^$?*+\\]/g, '')]
  const letters = [...new Set([...own, ...LETTERS])].slice(0, MOST_LETTERS)
  const pumps = [...letters, ...letters.flatMap((a) => letters.map((b) => a + b)), ...literals]
  const starts = ['', ...literals, literals.join('')]
  for (const start of new Set(starts)) {
    for (const pump of pumps) {
      const text = `${start}${pump.repeat(ATTACK_LENGTH / pump.length)}\n\0`
      if (isSlow(() => pattern.test(text))) return text.slice(0, 60)
    }
  }
  return undefined
}

/** In each of several tries: a machine that others use stalls now and then. */
function isSlow(work: () => void): boolean {
  for (let n = 0; n < TRIES; n++) {
    const startedAtMs = monotonicMs()
    work()
    if (monotonicMs() - startedAtMs < SLOW_MS) return false
  }
  return true
}

let proved = 0
let attacked = 0
afterAll(() => console.log(`patterns: ${patterns.length}, proved ${proved}, attacked ${attacked} without effect`))

test('nothing that is shipped puts a pattern together from parts', () => {
  expect(patterns.length).toBeGreaterThan(50)
  expect(dynamic).toEqual([])
})

test.each(patterns)('/$source/$flags ($place) takes linear time', { timeout: TIMEOUT_MS }, (pattern) => {
  if (isProved(pattern)) {
    proved += 1
    return
  }
  expect(attack(pattern)).toBeUndefined()
  attacked += 1
})

test.each(['^(a|a)*$', '(x+x+)+y', '^([a-z]+)*:$'])('exponential /%s/ is not proved', (source) => {
  expect(isProved({ source, flags: '', place: '' })).toBe(false)
})

test('a quadratic pattern is neither proved nor does it withstand', { timeout: TIMEOUT_MS }, () => {
  const pattern = { source: '%.*$', flags: '', place: '' }
  expect([isProved(pattern), attack(pattern)]).toEqual([false, expect.stringMatching(/^%%%/)])
})
