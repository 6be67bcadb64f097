import { expect, test } from 'vitest'
import { createNameLookup, type NameLookup } from '../../daemon/name-lookup.ts'
import { startNameServer, type NameAnswer } from '../../scripts/security/name-server.ts'

const ADDRESS = '127.0.0.2'
const firstAskedAt = new Map<string, number>()

/** As a server that asks others in turn: whoever asks again while it does has the answer when it comes. */
function onceFound(name: string, afterMs: number): NameAnswer {
  const foundAt = (firstAskedAt.get(name) ?? Date.now()) + afterMs
  firstAskedAt.set(name, foundAt - afterMs)
  return { addresses: [ADDRESS], delayMs: Math.max(0, foundAt - Date.now()) }
}

const ANSWERS: Record<string, (name: string) => NameAnswer> = {
  'quick.example': () => ({ addresses: [ADDRESS] }),
  'slow.example': () => ({ addresses: [ADDRESS], delayMs: 1500 }),
  'slower.example': () => ({ addresses: [ADDRESS], delayMs: 4000 }),
  'found.example': (name) => onceFound(name, 6000),
  'silent.example': () => ({ silent: true }),
}

async function lookedUp(lookUp: NameLookup, name: string) {
  const beganAt = Date.now()
  const outcome = await lookUp(name).catch((error: NodeJS.ErrnoException) => error.code)
  return { outcome, tookMs: Date.now() - beganAt }
}

test('a name is waited for as long as an attempt lasts, however quick other answers were', async () => {
  const nameServer = await startNameServer((name) => ANSWERS[name]?.(name))
  const lookUp = createNameLookup([nameServer.address])
  for (let n = 0; n < 5; n++) expect(await lookUp('quick.example')).toEqual([ADDRESS])
  const [slow, slower, found, silent, unknown] = await Promise.all(
    ['slow.example', 'slower.example', 'found.example', 'silent.example', 'unknown.example'].map((name) =>
      lookedUp(lookUp, name),
    ),
  )
  for (const { outcome, tookMs } of [slow!, slower!, found!]) {
    expect(outcome).toEqual([ADDRESS])
    expect(tookMs).toBeLessThan(9500)
  }
  expect(silent!.outcome).toBe('ETIMEOUT')
  expect(silent!.tookMs).toBeGreaterThan(9000)
  expect(silent!.tookMs).toBeLessThan(10_000)
  // What is answered is known at once.
  expect(unknown!.outcome).toBe('ENOTFOUND')
  expect(unknown!.tookMs).toBeLessThan(1000)
  nameServer.close()
})
