import { expect, test } from 'vitest'
import { messageRetrySeconds } from '../../src/messages/message-rules.ts'

test('the gateway is asked again later each time, and every quarter of an hour in the end', () => {
  expect([0, 1, 2, 3, 4, 5, 6, 7, 100].map(messageRetrySeconds)).toEqual([10, 20, 40, 80, 160, 320, 640, 900, 900])
})
