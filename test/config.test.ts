import { expect, test } from 'vitest'
import { ConfigError, readConfig } from '../src/config.ts'

const BASE = { NODE_ENV: 'test', DATA_DIR: '/nonexistent', SECRETS_KEY: Buffer.alloc(32, 7).toString('base64') }

function faultsOf(env: Record<string, string>): string[] {
  try {
    readConfig({ ...BASE, ...env })
    return []
  } catch (error) {
    return (error as ConfigError).faults
  }
}

test.each([['99999999999999999999'], ['5,31536001'], ['0'], ['5,'], ['1e3'], [`1${',1'.repeat(1000)}`]])(
  'a schedule of retries whose dates nothing could hold, or that is none, is refused: %.20s',
  (schedule) => {
    expect(faultsOf({ RETRY_SCHEDULE: schedule })).toEqual([
      expect.stringMatching(/^RETRY_SCHEDULE must be comma-separated seconds above 0 and up to 31536000/),
    ])
  },
)

test('a schedule of retries may wait a part of a second, and a year', () => {
  expect(readConfig({ ...BASE, RETRY_SCHEDULE: '0.5, 31536000' }).retryScheduleSeconds).toEqual([0.5, 31_536_000])
})
