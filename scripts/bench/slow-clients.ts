/**
 * `make bench-slow-clients`: what clients that take their time can do to a real API. Hundreds that are slow in five ways, and
 * thousands of connections on which nothing comes: all must be closed in time, and everybody else answered meanwhile. Exit 1
 * when not.
 *
 * `--slow n`: 500 by default. `--idle n`: 10,000 by default; each needs a file handle here and one in the API (`ulimit -n`).
 */
import { createConnection, type Socket } from 'node:net'
import { cpus } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { monotonicMs } from '../../src/clock.ts'
import { CrashArena, type Tenant } from '../crash/crash-arena.ts'
import { CrashServer } from '../crash/crash-server.ts'
import { call, newAgent } from '../crash/lead-client.ts'

/** And a second for a check that runs once a second. */
const CLOSED_WITHIN_MS = 16_000
const QUIET_MS = 5000
/** Opened together: the queue of a listener is not endless. */
const AT_ONCE = 200
const HEAD = 'POST /client/crm/lead/create HTTP/1.1\r\nHost: x\r\n'

interface Connection {
  kind: string
  openMs: Promise<number>
}

function open(port: number, kind: string, first: string, drip?: string): Promise<Connection> {
  return new Promise((resolve) => {
    const socket: Socket = createConnection(port, '127.0.0.1')
    let openedAtMs = monotonicMs()
    let dripping: NodeJS.Timeout | undefined
    const openMs = new Promise<number>((done) => {
      socket.on('close', () => {
        clearInterval(dripping)
        done(monotonicMs() - openedAtMs)
        resolve({ kind, openMs })
      })
    })
    socket.on('error', () => {})
    socket.resume()
    socket.on('connect', () => {
      openedAtMs = monotonicMs()
      if (first !== '') socket.write(first)
      if (drip !== undefined) dripping = setInterval(() => socket.write(drip), 1000)
      resolve({ kind, openMs })
    })
  })
}

interface Answers {
  count: number
  bad: number
  p50: number
  p99: number
  slowest: number
}

/** What a well-behaved client sees until it is told to stop: one call each 20 ms. */
async function watch(url: string, tenant: Tenant, isOver: () => boolean): Promise<Answers> {
  const agent = newAgent()
  const times: number[] = []
  let bad = 0
  while (!isOver()) {
    const startedAtMs = monotonicMs()
    const { status } = await call(agent, 'GET', `${url}/client/events/getAllEvents?labID=${tenant.lab}`, tenant)
    if (status !== 200) bad++
    times.push(monotonicMs() - startedAtMs)
    await sleep(20)
  }
  agent.destroy()
  times.sort((a, b) => a - b)
  const at = (share: number) => times[Math.floor((times.length - 1) * share)] ?? 0
  return { count: times.length, bad, p50: at(0.5), p99: at(0.99), slowest: at(1) }
}

function row(name: string, { count, bad, p50, p99, slowest }: Answers): void {
  console.log(`| ${[name, count, bad, p50.toFixed(1), p99.toFixed(1), slowest.toFixed(1)].join(' | ')} |`)
}

/** @param kinds what each of them sends, as many of each */
async function besiege(
  url: string,
  tenant: Tenant,
  kinds: [string, string, string?][],
  count: number,
): Promise<string[]> {
  const port = Number(new URL(url).port)
  let isOver = false
  const watched = watch(url, tenant, () => isOver)
  const connections: Connection[] = []
  for (let n = 0; n < count; n += AT_ONCE) {
    const size = Math.min(AT_ONCE, count - n)
    connections.push(
      ...(await Promise.all(Array.from({ length: size }, (_, i) => open(port, ...kinds[(n + i) % kinds.length]!)))),
    )
  }
  const openMs = await Promise.all(connections.map((connection) => connection.openMs))
  isOver = true
  const name = `${count} ${kinds.length === 1 ? 'idle connections' : 'slow clients'}`
  const answers = await watched
  row(name, answers)
  const faults = answers.bad > 0 ? [`${name}: ${answers.bad} of ${answers.count} calls were not answered with 200`] : []
  for (const [kind] of kinds) {
    const longest = Math.max(0, ...openMs.filter((_, index) => connections[index]!.kind === kind))
    console.error(`${name}: ${kind}: closed after ${(longest / 1000).toFixed(1)} s at the most`)
    if (longest > CLOSED_WITHIN_MS) faults.push(`${name}: ${kind}: closed after ${(longest / 1000).toFixed(1)} s`)
  }
  return faults
}

async function measure(arena: CrashArena, slow: number, idle: number): Promise<string[]> {
  const tenant = await arena.addTenant()
  const { url } = await arena.startApi()
  const head = `${HEAD}Authorization: Bearer ${tenant.token}\r\n`
  const body = `${head}Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n`
  console.log('| with | calls | not answered | p50 ms | p99 ms | slowest ms |\n|---|---|---|---|---|---|')
  const quietUntilMs = monotonicMs() + QUIET_MS
  row('nobody else', await watch(url, tenant, () => monotonicMs() > quietUntilMs))
  const kinds: [string, string, string?][] = [
    ['nothing is sent', ''],
    ['half a head', head],
    ['a head byte by byte', head, 'X'],
    ['half a body', `${body}{"a":`],
    ['a body byte by byte', body, ' '],
  ]
  return [...(await besiege(url, tenant, kinds, slow)), ...(await besiege(url, tenant, [kinds[0]!], idle))]
}

async function main(): Promise<boolean> {
  const { values } = parseArgs({ options: { slow: { type: 'string' }, idle: { type: 'string' } } })
  console.log(`${cpus().length} x ${cpus()[0]?.model}, Node ${process.version}\n`)
  const server = await CrashServer.start()
  try {
    const arena = await CrashArena.open(await server.newDatabase(), server.folder, server.tls)
    try {
      const faults = await measure(arena, Number(values.slow ?? 500), Number(values.idle ?? 10_000))
      for (const fault of faults) console.log(`MISSED ${fault}`)
      return faults.length === 0
    } finally {
      await arena.close()
    }
  } finally {
    await server.close()
  }
}

main().then(
  (good) => process.exit(good ? 0 : 1),
  (error: Error) => {
    process.stderr.write(`bench: ${error.stack}\n`)
    process.exit(1)
  },
)
