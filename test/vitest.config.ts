import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { defineConfig } from 'vitest/config'

export default defineConfig({
  root: join(import.meta.dirname, '..'),
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/support/global-setup.ts'],
    // A process per file: each may set its own clock, start servers and be killed without harm to another.
    pool: 'forks',
    // Files mostly wait for a database or a socket: two at a time also where there are only two cores.
    maxWorkers: Math.max(2, availableParallelism() - 1),
    // Only for tests that say that they run side by side: what those mostly do is wait.
    maxConcurrency: 20,
    testTimeout: 30_000,
    hookTimeout: 60_000,
  },
})
