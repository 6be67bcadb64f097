import { expect, test } from 'vitest'
import { LinkedLine, type Linked } from '../src/linked-line.ts'

interface Item extends Linked<Item> {
  name: string
}

const item = (name: string): Item => ({ name, line: undefined, previous: undefined, next: undefined })

const names = (line: LinkedLine<Item>) =>
  line
    .values()
    .map(({ name }) => name)
    .join('')

/** A line that says the same in every way it can be asked. */
function expectLine(line: LinkedLine<Item>, expected: string): void {
  expect([names(line), line.size, line.first?.name]).toEqual([expected, expected.length, expected[0]])
  const all = line.values()
  expect(all.map(({ previous }) => previous)).toEqual([undefined, ...all].slice(0, all.length))
}

test('items stand in the order in which they came, and leave from anywhere', () => {
  for (const order of ['abc', 'acb', 'bac', 'bca', 'cab', 'cba']) {
    const line = new LinkedLine<Item>()
    const items = new Map([...'abc'].map((name) => [name, item(name)]))
    for (const one of items.values()) line.add(one)
    expectLine(line, 'abc')
    let left = 'abc'
    for (const name of order) {
      expect(line.remove(items.get(name)!)).toBe(true)
      left = left.replace(name, '')
      expectLine(line, left)
    }
    line.add(items.get('b')!)
    expectLine(line, 'b')
  }
})

test('one that left knows of no other, and leaves once', () => {
  const line = new LinkedLine<Item>()
  const [a, b, c] = [item('a'), item('b'), item('c')]
  for (const one of [a, b, c]) line.add(one)
  for (const one of [b, a, c]) {
    expect(line.remove(one)).toBe(true)
    expect(one).toEqual(item(one.name))
    expect(line.remove(one)).toBe(false)
  }
  expect(line.size).toBe(0)
})

test('an item of another line is not taken out', () => {
  const [line, other] = [new LinkedLine<Item>(), new LinkedLine<Item>()]
  const [a, b] = [item('a'), item('b')]
  line.add(a)
  other.add(b)
  expect([line.remove(b), other.remove(a)]).toEqual([false, false])
  expectLine(line, 'a')
  expectLine(other, 'b')
})

test('the first is taken out until none is left', () => {
  const line = new LinkedLine<Item>()
  for (const name of 'abc') line.add(item(name))
  expect([1, 2, 3, 4].map(() => line.shift()?.name)).toEqual(['a', 'b', 'c', undefined])
  expectLine(line, '')
})
