import { once } from 'node:events'
import { createServer } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { refuseTakenPorts } from '../../scripts/ports.ts'
import { readConfig } from '../../src/config.ts'
import { freePort } from '../support/free-port.ts'

const other = createServer()
let env: Record<string, string>

beforeAll(async () => {
  env = { PORT: String(await freePort()), DAEMON_PORT: '0' }
  other.listen({ port: Number(env.PORT), host: '127.0.0.1', reusePort: true })
  await once(other, 'listening')
})
afterAll(() => void other.close())

test('a port that another process has is refused before anything starts, unless both share it', async () => {
  await expect(refuseTakenPorts(readConfig(env))).rejects.toThrow(/^port \d+ on 127\.0\.0\.1 is taken/)
  await refuseTakenPorts(readConfig({ ...env, REUSE_PORT: 'true' }))
})
