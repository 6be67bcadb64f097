import { expect, test } from 'vitest'
import { DueSending, type DueSendingOptions } from '../../daemon/due-sending.ts'

const turn = () => new Promise((resolve) => setImmediate(resolve))

/** Rows are numbers; what is handed over is under way until it is let go. */
function world(options: Partial<DueSendingOptions<number>> = {}) {
  const due: number[] = []
  const begun: number[] = []
  const faults: unknown[] = []
  const open = new Map<number, PromiseWithResolvers<void>>()
  const sending = new DueSending<number>({
    most: 3,
    list: async (limit) => due.slice(0, limit),
    keyOf: String,
    handOver(row) {
      begun.push(row)
      open.set(row, Promise.withResolvers())
      return open.get(row)!.promise
    },
    onFault: (error) => faults.push(error),
    ...options,
  })
  /** As a row that is claimed is due no more, and one whose claim fails still is. */
  const end = async (row: number, error?: unknown) => {
    if (error === undefined) {
      due.splice(due.indexOf(row), 1)
      open.get(row)!.resolve()
    } else open.get(row)!.reject(error as Error)
    await turn()
  }
  return { due, begun, faults, sending, end }
}

test('goes on as room comes, with never more than its number under way', async () => {
  const { due, begun, sending, end } = world()
  due.push(...Array.from({ length: 250 }, (_, n) => n))
  const run = sending.run()
  for (let n = 0; n < 250; n++) {
    await turn()
    expect(begun).toHaveLength(Math.min(250, n + 3))
    await end(n)
  }
  await run
  expect(new Set(begun).size).toBe(250)
})

test('what comes due while a list is being read is seen', async () => {
  const listing = Promise.withResolvers<void>()
  let lists = 0
  const own = world({
    async list() {
      lists += 1
      const listed = [...own.due]
      if (lists === 1) await listing.promise
      return listed
    },
  })
  own.due.push(1)
  const first = own.sending.begin()
  await turn()
  own.due.push(2)
  const second = own.sending.begin()
  listing.resolve()
  await Promise.all([first, second])
  await turn()
  await own.end(1)
  expect(own.begun).toEqual([1, 2])
})

test('one with which the database is at fault waits until somebody asks again, and keeps no other waiting', async () => {
  const { due, begun, faults, sending, end } = world()
  due.push(1, 2, 3, 4)
  await sending.begin()
  await end(1, new Error('locked'))
  for (const row of [2, 3, 4]) await end(row)
  expect([begun, faults]).toEqual([[1, 2, 3, 4], [new Error('locked')]])
  await sending.begin()
  expect(begun).toEqual([1, 2, 3, 4, 1])
})

test('a list that fails is told, and the next one is as good as the first', async () => {
  let isDown = true
  const { due, begun, faults, sending } = world({
    list: async () => {
      if (isDown) throw new Error('gone')
      return due
    },
  })
  due.push(1)
  await sending.begin()
  expect([begun, faults]).toEqual([[], [new Error('gone')]])
  isDown = false
  await sending.begin()
  expect(begun).toEqual([1])
})

test('what is under way is not begun a second time, though its row says that it is due', async () => {
  const { due, begun, sending } = world()
  due.push(1)
  await sending.begin()
  await sending.begin()
  due.push(2)
  await sending.begin()
  expect(begun).toEqual([1, 2])
})

test('one that takes long leaves its place to another, and counts again for none once it ends', async () => {
  const { due, begun, sending, end } = world({ most: 1, slow: { afterMs: 10, most: 2 } })
  due.push(1, 2, 3, 4)
  await sending.begin()
  expect(begun).toEqual([1])
  // With two that are slow no third is begun.
  await expect.poll(() => begun).toEqual([1, 2])
  await new Promise((resolve) => setTimeout(resolve, 40))
  expect(begun).toEqual([1, 2])
  await end(1)
  await expect.poll(() => begun).toEqual([1, 2, 3])
  await end(3)
  expect(begun).toEqual([1, 2, 3, 4])
  await end(4)
  await end(2)
  await sending.run()
  expect(sending.underWay).toBe(0)
})

test('a stop begins nothing more, also not of what has just been listed', async () => {
  const listing = Promise.withResolvers<void>()
  const { begun, sending } = world({ list: () => listing.promise.then(() => [1, 2]) })
  const first = sending.begin()
  await turn()
  const stopped = sending.stop()
  listing.resolve()
  await Promise.all([first, stopped])
  await sending.begin()
  expect(begun).toEqual([])
})

test('a stop waits for what is under way, and no longer than it is told to', async () => {
  const { due, sending, end } = world()
  due.push(1)
  await sending.begin()
  await sending.stop(20)
  let isOver = false
  const stopped = sending.stop().then(() => (isOver = true))
  await turn()
  expect(isOver).toBe(false)
  await end(1)
  await stopped
})
