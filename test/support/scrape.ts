/**
 * Metrics read as Prometheus reads them.
 */
import { expect } from 'vitest'

/** Each sample by its name and labels. */
export async function scrape(port: number): Promise<Map<string, number>> {
  const answer = await fetch(`http://127.0.0.1:${port}/metrics`)
  expect([answer.status, answer.headers.get('content-type')]).toEqual([
    200,
    expect.stringMatching(/^text\/plain; version=0\.0\.4/),
  ])
  const lines = (await answer.text()).split('\n').filter((line) => line !== '' && !line.startsWith('#'))
  return new Map(
    lines.map((line) => {
      const [, sample, value] = /^([a-z0-9_]+(?:\{[^}]*\})?) (\S+)$/.exec(line) ?? []
      expect([line, sample]).not.toEqual([line, undefined])
      return [sample!, Number(value)]
    }),
  )
}
