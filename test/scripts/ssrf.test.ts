/**
 * The quick form of `make bench-ssrf`: canaries on every refused address, and a real daemon with the settings of production.
 */
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, test } from 'vitest'
import { namespaceFault } from '../../scripts/security/network-namespace.ts'

const SCRIPT = join(import.meta.dirname, '../../scripts/security/ssrf.ts')
const ROUNDS = 100

const fault = namespaceFault()
const WITHOUT_NETWORK = `skipped: a network of its own is not to be had here: ${fault}`
if (fault) console.log(WITHOUT_NETWORK)

describe.skipIf(fault)(`in a network of canaries${fault ? ` (${WITHOUT_NETWORK})` : ''}`, { timeout: 120_000 }, () => {
  test('no endpoint, name, redirect or rebinding makes a daemon call a refused address, and public ones are called', async () => {
    const { stdout } = await promisify(execFile)(process.execPath, [SCRIPT, '--rounds', String(ROUNDS)]).catch(
      (error: { stdout?: string; message: string }) => ({ stdout: `${error.stdout}\n${error.message}` }),
    )
    const counts = stdout.split('\n').find((line) => line.startsWith('canaries='))
    console.log(counts ?? stdout)
    expect(stdout).toMatch(/^canaries=69 touched=0 .* elsewhere=0 redirects followed=0 registered=0$/m)
    expect(stdout).not.toMatch(/MISSED|Error|failed/)
  })
})
