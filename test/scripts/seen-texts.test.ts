import { describe, expect, it } from 'vitest'
import { SeenTexts } from '../../scripts/bench/seen-texts.ts'

/** More than it begins with room for. */
const TEXTS = 300_000
const textOf = (n: number) => `/ok/${n % 200} evt_01k${n.toString(32).padStart(23, '0')}`

describe('SeenTexts', () => {
  it('takes each text for new once, also behind its own growth', () => {
    const seen = new SeenTexts()
    let first = 0
    for (let n = 0; n < TEXTS; n++) if (seen.add(textOf(n))) first += 1
    expect(first).toBe(TEXTS)
    let again = 0
    for (let n = 0; n < TEXTS; n++) if (seen.add(textOf(n))) again += 1
    expect(again).toBe(0)
    expect(seen.size).toBe(TEXTS)
  })

  it('tells texts apart that have the same letters', () => {
    const seen = new SeenTexts()
    expect(['', 'ab', 'ba', 'aab', 'aba', 'ab', ''].map((text) => seen.add(text))).toEqual([
      ...[true, true, true, true, true],
      ...[false, false],
    ])
  })
})
