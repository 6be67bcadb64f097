import { expect, test } from 'vitest'
import { textPdf } from '../src/text-pdf.ts'

test.each([0, 1, 52, 53, 500])('%i lines make a PDF whose table leads to each of its objects', (count) => {
  const lines = Array.from({ length: count }, (_, n) => `line ${n} (of) \\ é ह`)
  const text = textPdf(lines).toString('latin1')
  expect(text).toMatch(/^%PDF-1\.4\n[^]*%%EOF\n$/)
  const start = Number(/startxref\n(\d+)\n/.exec(text)![1])
  expect(text.slice(start, start + 5)).toBe('xref\n')
  const offsets = [...text.slice(start).matchAll(/^(\d{10}) 00000 n $/gm)].map(([, offset]) => Number(offset))
  offsets.forEach((offset, index) => expect(text.slice(offset)).toMatch(new RegExp(`^${index + 1} 0 obj\n`)))
  for (const [, length, stream] of text.matchAll(/<< \/Length (\d+) >>\nstream\n([^]*?)\nendstream/g)) {
    expect(stream!.length).toBe(Number(length))
  }
  expect(text).toContain(`/Count ${Math.max(1, Math.ceil(count / 52))} `)
  expect(text.match(/line \d+ \\\(of\\\) \\\\ é \?/g) ?? []).toHaveLength(count)
})
