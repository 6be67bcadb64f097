/**
 * `make mock`: the client contract answers by itself, without a database. Prism gives the documented examples and finds what
 * does not fit; a front before it says so in the contract's own shape, and sends sample events to whoever subscribes.
 */
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { readFileSync } from 'node:fs'
import { parse } from 'yaml'
import { ConfigError, loadEnvFile, readConfig } from '../src/config.ts'
import { createHttpServer } from '../src/http-server.ts'
import { describePortFault } from '../src/port-fault.ts'
import { onStopRequest } from '../src/stop-request.ts'
import { sendSampleEvents, type ContractDocument } from './mock-events.ts'
import { createMockFront } from './mock-front.ts'
import { urlOf } from './ports.ts'
import { spawnTied, StartFault } from './processes.ts'

const ROOT = join(import.meta.dirname, '..')
const CONTRACT = join(ROOT, 'openapi', 'client.yaml')
const START_TIMEOUT_MS = 30_000

function say(line: string): void {
  console.log(`mock: ${line}`)
}

/** @returns where it listens: a free port of this machine, for the front alone */
async function startPrism(): Promise<{ child: ChildProcess; url: string }> {
  const child = spawnTied(
    process.execPath,
    [
      join(ROOT, 'node_modules', '.bin', 'prism'),
      'mock',
      '--host',
      '127.0.0.1',
      '--port',
      '0',
      '--cors=false',
      CONTRACT,
    ],
    { stdio: ['ignore', 'pipe', 'pipe'] },
  )
  const lines: string[] = []
  const url = await new Promise<string>((resolve, reject) => {
    const fail = (why: string) =>
      reject(new StartFault(`Prism does not start (${why})\n${lines.slice(-10).join('\n')}`))
    const timer = setTimeout(() => {
      child.kill('SIGKILL')
      fail(`no answer within ${START_TIMEOUT_MS / 1000} s`)
    }, START_TIMEOUT_MS)
    const read = (line: string) => {
      lines.push(line)
      const listening = /Prism is listening on (http:\S+:\d+)/.exec(line)?.[1]
      if (!listening) return
      clearTimeout(timer)
      lines.length = 0
      resolve(listening)
    }
    // Read to the end, or Prism would stop at a full pipe; what it says is said again by the front, in fewer words.
    createInterface({ input: child.stdout! }).on('line', read)
    createInterface({ input: child.stderr! }).on('line', (line) => lines.push(line) > 100 && lines.shift())
    child.on('error', (error) => fail(error.message))
    child.on('exit', (code, signal) => {
      clearTimeout(timer)
      fail(signal ?? `code ${code}`)
    })
  })
  return { child, url }
}

function operationIdsOf({ paths }: ContractDocument): string[] {
  return Object.values(paths).flatMap((path) => Object.values(path).flatMap(({ operationId }) => operationId ?? []))
}

async function main(): Promise<void> {
  loadEnvFile()
  const config = readConfig()
  // Read at each sending: `make receiver` may make the authority after we have started.
  const caFiles = () => (config.mockCaFile ? [config.mockCaFile] : readConfig().deliveryCaFiles)
  const contract = parse(readFileSync(CONTRACT, 'utf8')) as ContractDocument

  let prism: ChildProcess | undefined
  let stopping = false
  onStopRequest(() => {
    stopping = true
    prism?.kill('SIGTERM')
    process.exit(0)
  })
  const started = await startPrism()
  prism = started.child
  const front = createHttpServer(
    await createMockFront(operationIdsOf(contract), started.url, say, (subscription) =>
      sendSampleEvents(contract, subscription, caFiles(), say),
    ),
  )
  prism.on('exit', (code, signal) => {
    if (stopping) return
    console.error(`mock: Prism ended (${signal ?? `code ${code}`}): start again`)
    process.exit(1)
  })
  try {
    front.listen(config.mockPort, config.host)
    await once(front, 'listening')
  } catch (error) {
    stopping = true
    prism.kill('SIGTERM')
    const { host, mockPort: port } = config
    throw new StartFault(describePortFault(error, { host, port, setting: 'MOCK_PORT', hostSetting: 'HOST' }))
  }
  const { port } = front.address() as AddressInfo
  say(`listening on ${urlOf(config.host, port)}; it answers with the examples of openapi/client.yaml; Ctrl-C ends it`)
}

main().catch((error) => {
  const isExpected = error instanceof ConfigError || error instanceof StartFault
  console.error(isExpected ? `mock: ${error.message}` : error)
  process.exit(1)
})
