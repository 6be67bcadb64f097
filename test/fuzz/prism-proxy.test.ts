/**
 * A second opinion on the contract: valid requests go through `prism proxy --errors`, which holds each request and each answer
 * to openapi/client.yaml by its own reading of it.
 */
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { request } from 'node:http'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { client, startTestApp, type CallOptions, type TestApp } from '../support/app.ts'
import type { Answer } from '../support/contract-checker.ts'
import { FuzzWorld } from './fuzz-world.ts'
import { OperationRunner } from './operation-runs.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const RUNS = Number(process.env.PRISM_RUNS ?? 6)
const SEED = Number(process.env.FUZZ_SEED ?? Math.floor(Math.random() * 1e9))

/** Prism divides, so that 0.07 is no multiple of 0.01 to it; quarters it gets right. */
const quarters = fc.integer({ min: 0, max: 4_000_000 }).map((n) => n / 4)
const EXACT_MONEY = { '*.cost': quarters, '*.price': quarters, discountAmount: quarters, totalAmount: quarters }

let app: TestApp
let prism: ChildProcess
let runner: OperationRunner
const violations: string[] = []
let passed = 0

beforeAll(async () => {
  app = await startTestApp({ serves: { client: true, operator: false } })
  prism = spawn(
    process.execPath,
    [
      join(ROOT, 'node_modules', '.bin', 'prism'),
      'proxy',
      '--errors',
      '--host',
      '127.0.0.1',
      '--port',
      '0',
      join(ROOT, 'openapi', 'client.yaml'),
      `http://127.0.0.1:${app.port}`,
    ],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  )
  const port = await new Promise<number>((resolve, reject) => {
    createInterface({ input: prism.stdout! }).on('line', (line) => {
      const listening = /Prism is listening on http:\S+:(\d+)/.exec(line)?.[1]
      if (listening) resolve(Number(listening))
    })
    prism.on('exit', (code) => reject(new Error(`Prism ended with code ${code}`)))
  })
  const world = await FuzzWorld.create({ ...app, call: (...call) => callThrough(port, ...call) })
  runner = new OperationRunner(world, client, EXACT_MONEY)
})
afterAll(async () => {
  prism.kill('SIGTERM')
  await once(prism, 'exit')
  console.log(`prism: ${passed} requests passed, seed ${SEED} (FUZZ_SEED, PRISM_RUNS)`)
  await app.close()
})

async function callThrough(port: number, method: string, path: string, options: CallOptions = {}) {
  const { token, body, headers = {}, query = {} } = options
  const sent = Object.entries(query).filter((entry): entry is [string, string] => entry[1] !== undefined)
  const payload = body === undefined ? '' : JSON.stringify(body)
  const answer = await new Promise<Answer & { body: any }>((resolve, reject) => {
    const outgoing = request(
      {
        port,
        method,
        host: '127.0.0.1',
        path: sent.length === 0 ? path : `${path}?${new URLSearchParams(sent)}`,
        headers: {
          ...(body === undefined
            ? {}
            : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(payload) }),
          ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
          ...headers,
        },
      },
      (incoming) => {
        const chunks: Buffer[] = []
        incoming.on('data', (chunk) => chunks.push(chunk))
        incoming.on('error', reject)
        incoming.on('end', () => {
          const text = Buffer.concat(chunks).toString('utf8')
          resolve({ status: incoming.statusCode!, headers: incoming.headers, body: text && JSON.parse(text) })
        })
      },
    )
    outgoing.on('error', reject)
    outgoing.end(payload)
  })
  passed += 1
  const found = answer.headers['sl-violations']
  if (found !== undefined) violations.push(`${method} ${path} ${payload.slice(0, 500)}: ${String(found)}`)
  return answer
}

test.each(client.operations)(
  'Prism has nothing against $operationId, neither its requests nor its answers',
  async (operation) => {
    const outcome = await runner.runValid(operation, RUNS, SEED, false)
    expect(outcome.failures.slice(0, 5)).toEqual([])
    expect(violations.slice(0, 5)).toEqual([])
    expect(outcome.sent).toBe(RUNS)
  },
  120_000,
)
