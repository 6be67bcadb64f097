/**
 * Calls to the operator API.
 */
import type { components } from '../../src/generated/operator.ts'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { NoAnswer, Refusal, UsageFault } from './command-faults.ts'

type Schemas = components['schemas']

export interface OperatorClient {
  /** @throws Refusal for an answer from 400 to 499, NoAnswer for a higher one or none */
  call(method: string, path: string, options?: CallOptions): Promise<any>
}

export interface CallOptions {
  query?: Record<string, string>
  body?: unknown
  /** A PDF instead of JSON. */
  file?: Buffer | undefined
  /** Of a call that can be made twice without harm: it is made again when there is no answer. */
  repeatable?: boolean
  idempotencyKey?: string | undefined
}

const TRIES = 6
const FIRST_WAIT_MS = 250
/** The service answers within some seconds or not at all. */
const ANSWER_LIMIT_MS = 30_000
/** A file takes its time on the way. */
const FILE_LIMIT_MS = 150_000

/** A call under the same Idempotency-Key has not ended: of a repeat, most likely the first try. */
class StillRunning extends Refusal {}

export function createOperatorClient(options: {
  url?: string | undefined
  keyFile?: string | undefined
}): OperatorClient {
  const known = demo()
  const { OPERATOR_URL, OPERATOR_PORT, PORT } = process.env
  const here = `http://127.0.0.1:${OPERATOR_PORT || PORT || 8080}`
  const address = options.url || OPERATOR_URL || known?.operatorUrl || known?.baseUrl || here
  const baseUrl = address.replace(/(?<!\/)\/+$/, '')
  if (!/^https?:\/\//.test(baseUrl) || !URL.canParse(baseUrl))
    throw new UsageFault('--url must be a URL that begins with http')
  const key = readKey(options.keyFile)

  async function callOnce(method: string, path: string, options: CallOptions): Promise<any> {
    const { query, body, file, idempotencyKey } = options
    const search = query && Object.keys(query).length > 0 ? `?${new URLSearchParams(query)}` : ''
    const headers: Record<string, string> = { authorization: `Bearer ${key}` }
    if (body !== undefined) headers['content-type'] = 'application/json'
    if (file) headers['content-type'] = 'application/pdf'
    if (idempotencyKey !== undefined) headers['idempotency-key'] = idempotencyKey
    const answer = await fetch(`${baseUrl}${path}${search}`, {
      method,
      headers,
      body: file ? new Uint8Array(file) : body === undefined ? null : JSON.stringify(body),
      signal: AbortSignal.timeout(file ? FILE_LIMIT_MS : ANSWER_LIMIT_MS),
    }).catch((error: Error & { cause?: { code?: string } }) => {
      throw new NoAnswer(
        `${baseUrl} does not answer (${error.cause?.code ?? error.name}): is it running, and is this its address?`,
      )
    })
    const text = await answer.text().catch(() => '')
    const content = parseJson(text)
    if (answer.ok && content !== undefined) return content
    const fault = content as Partial<Schemas['Error']> | undefined
    const details = fault?.error?.details ?? 'the answer is not that of this service'
    if (answer.status >= 500 || content === undefined) throw new NoAnswer(`${answer.status}: ${details}`)
    const said = `${answer.status} ${fault?.message}: ${details}`
    throw fault?.error?.code === 'idempotency_in_progress'
      ? new StillRunning(said, 409)
      : new Refusal(said, answer.status)
  }

  return {
    call: async (method, path, callOptions = {}) => {
      for (let attempt = 1; ; attempt++) {
        try {
          return await callOnce(method, path, callOptions)
        } catch (error) {
          const isLast = attempt === TRIES || !callOptions.repeatable
          if (isLast || !(error instanceof NoAnswer || error instanceof StillRunning)) throw error
          await new Promise((resolve) => setTimeout(resolve, FIRST_WAIT_MS * 2 ** (attempt - 1)))
        }
      }
    },
  }
}

/** Never an argument: those are seen by everybody on the machine. */
function readKey(keyFile: string | undefined): string {
  const key = keyFile === undefined ? process.env.OPERATOR_KEY || demo()?.operatorKey : readText(keyFile)
  if (key === undefined)
    throw new UsageFault('there is no operator key: set OPERATOR_KEY, or name a file with --key-file')
  if (!/^[A-Za-z0-9_-]+$/.test(key.trim()))
    throw new UsageFault('the operator key is none: letters, digits, _ and - only')
  return key.trim()
}

/** @throws UsageFault */
export function readText(file: string): string {
  return readBytes(file).toString('utf8')
}

/** @throws UsageFault */
export function readBytes(file: string): Buffer {
  try {
    return readFileSync(file)
  } catch (error) {
    throw new UsageFault(`${file} can't be read (${(error as NodeJS.ErrnoException).code})`)
  }
}

/** What `make run` wrote, where it did. */
function demo(): { baseUrl: string; operatorUrl?: string; operatorKey: string } | undefined {
  try {
    return JSON.parse(readFileSync(join(process.env.DATA_DIR || '.data', 'demo.json'), 'utf8'))
  } catch {
    return undefined
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
