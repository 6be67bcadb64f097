/**
 * The limit that delivery is measured against: kept-alive HTTPS POSTs of the same size with undici's `request`, nothing
 * else. Arguments: URL, CA file, requests, requests in flight, requests before the clock starts. Prints requests per second and CPU time a request, in microseconds.
 */
import { readFileSync } from 'node:fs'
import { Agent, request } from 'undici'
import { monotonicMs } from '../../src/clock.ts'
import { BODY_BYTES } from './sizes.ts'

const [url, caFile, countText, inFlightText, warmUpText] = process.argv.slice(2) as [
  string,
  string,
  string,
  string,
  string,
]
const count = Number(countText)
const inFlight = Number(inFlightText)
const dispatcher = new Agent({ connections: inFlight, connect: { ca: readFileSync(caFile), allowH2: false } })
const body = Buffer.alloc(BODY_BYTES, 'x')

async function send(total: number): Promise<void> {
  let started = 0
  const worker = async () => {
    while (started < total) {
      const n = ++started
      const headers = { 'content-type': 'application/json', 'webhook-id': `raw_${process.pid}_${total}_${n}` }
      const answer = await request(url, { method: 'POST', body, headers, dispatcher })
      await answer.body.dump()
    }
  }
  await Promise.all(Array.from({ length: inFlight }, worker))
}

// Connections and compiled code are there before the clock starts, as they are for the daemon after its first seconds.
await send(Number(warmUpText))
const startedAtMs = monotonicMs()
const cpuBefore = process.cpuUsage()
await send(count)
const rate = (count / (monotonicMs() - startedAtMs)) * 1000
const { user, system } = process.cpuUsage(cpuBefore)
console.log(JSON.stringify({ rate, cpuUs: (user + system) / count }))
process.exit(0)
