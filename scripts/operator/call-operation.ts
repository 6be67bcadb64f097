/**
 * An operation of the contract as a command: its parameters and the fields of its body are options.
 */
import { randomUUID } from 'node:crypto'
import { parseArgs } from 'node:util'
import type { ApiOperation, Schema } from './api-operations.ts'
import { NoAnswer, UsageFault } from './command-faults.ts'
import { createOperatorClient, readBytes, readText } from './operator-client.ts'
import { printAnswer } from './print-answer.ts'

const COMMON_OPTIONS = ['url', 'key-file', 'output', 'data']
/** Of what creates something. */
const KEY_OPTION = 'idempotency-key'

/** `listAccounts` -> `list-accounts` */
export function commandOf({ operationId }: ApiOperation): string {
  return operationId.replace(/[A-Z]+/g, (letters) => `-${letters.toLowerCase()}`)
}

export function operationHelp(operation: ApiOperation): string {
  const { parameters, body, takesFile, takesKey } = operation
  const lines = [
    ...(takesFile ? [toLine('file', true, 'The PDF to send.')] : []),
    ...(takesKey ? [toLine(KEY_OPTION, false, KEY_HELP)] : []),
    ...parameters.map(({ name, required, description }) => toLine(name, required, description)),
    ...Object.entries(body?.properties ?? {}).map(([name, schema]) =>
      toLine(name, body!.required.includes(name), `${schema.description ?? ''}${hintOf(schema)}`),
    ),
  ]
  const usage = `Usage: node scripts/operator.ts ${commandOf(operation)} [--option value …]`
  return `${usage}\n\n${operation.summary} (${operation.method} ${operation.path}). ${operation.description}\n\n${lines.join('\n')}\n`
}

const KEY_HELP =
  'The same for a repeat, which makes nothing a second time. By itself a call has one of its own, and is made again where there is no answer.'

function toLine(name: string, required: boolean, description: string): string {
  return `  --${name}${required ? ' (required)' : ''}  ${description.replaceAll('\n', ' ')}`
}

function hintOf(schema: Schema): string {
  if (schema.enum) return ` One of ${schema.enum.join(', ')}.`
  if (isListOfTexts(schema)) return ' May be given several times.'
  return isPlain(schema) ? '' : ' As JSON.'
}

export async function callOperation(operation: ApiOperation, args: string[]): Promise<void> {
  const values = readOptions(operation, args)
  const output = formatOf(values.output)
  const client = createOperatorClient({ url: one(values.url), keyFile: one(values['key-file']) })
  const path = operation.path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(required(values, name)))
  const query: Record<string, string> = {}
  for (const { name, in: place, required: isRequired } of operation.parameters) {
    if (place === 'query' && (isRequired || values[name] !== undefined)) query[name] = required(values, name)
  }
  const body = bodyOf(operation, values)
  const file = operation.takesFile ? readBytes(required(values, 'file')) : undefined
  const idempotencyKey = operation.takesKey ? (one(values[KEY_OPTION]) ?? randomUUID()) : undefined
  const repeatable = operation.takesKey
  const callPage = () =>
    client.call(operation.method, path, { query, body, file, idempotencyKey, repeatable }).catch((error) => {
      // What came of it nobody knows: whoever makes the call again wants it to be the same one.
      if (idempotencyKey === undefined || !(error instanceof NoAnswer)) throw error
      throw new NoAnswer(`${error.message} (to repeat this very call add --${KEY_OPTION} ${idempotencyKey})`)
    })
  let answer = await callPage()
  while (values.all && typeof answer.nextCursor === 'string') {
    query.cursor = answer.nextCursor
    answer = append(answer, await callPage())
  }
  printAnswer(answer, output)
}

type Values = Record<string, string | boolean | string[] | undefined>

function readOptions(operation: ApiOperation, args: string[]): Values {
  const files = operation.takesFile ? ['file'] : []
  const keys = operation.takesKey ? [KEY_OPTION] : []
  const names = [...COMMON_OPTIONS, ...files, ...keys, ...operation.parameters.map(({ name }) => name)]
  const texts = Object.keys(operation.body?.properties ?? {})
  const options = Object.fromEntries([
    ...[...names, ...texts].map((name) => [
      name,
      { type: 'string' as const, multiple: isListOfTexts(operation.body?.properties[name] ?? {}) },
    ]),
    ['all', { type: 'boolean' as const }],
  ])
  try {
    return parseArgs({ args, options, strict: true, allowPositionals: false }).values as Values
  } catch (error) {
    throw new UsageFault(`${(error as Error).message}: see ${commandOf(operation)} --help`)
  }
}

function required(values: Values, name: string): string {
  const value = one(values[name])
  if (value === undefined || value === '') throw new UsageFault(`--${name} is required`)
  return value
}

function one(value: Values[string]): string | undefined {
  return typeof value === 'string' ? value : undefined
}

export function formatOf(value: Values[string]): 'json' | 'table' {
  if (value === undefined || value === 'json') return 'json'
  if (value === 'table') return 'table'
  throw new UsageFault('--output must be json or table')
}

/** The fields of `--data`, and over them those that are options of their own. */
function bodyOf(operation: ApiOperation, values: Values): Record<string, unknown> | undefined {
  const { body } = operation
  if (!body && values.data !== undefined)
    throw new UsageFault(`${commandOf(operation)} takes no body: leave --data out`)
  if (!body) return undefined
  const fields: Record<string, unknown> = values.data === undefined ? {} : readData(one(values.data)!)
  for (const [name, schema] of Object.entries(body.properties)) {
    const value = values[name]
    // A parameter of the same name is not the body's.
    if (value === undefined || operation.parameters.some((parameter) => parameter.name === name)) continue
    fields[name] = Array.isArray(value) ? value : toValue(name, String(value), schema)
  }
  return fields
}

function readData(data: string): Record<string, unknown> {
  const text = data === '-' ? readText('/dev/stdin') : data.startsWith('@') ? readText(data.slice(1)) : data
  // Some editors begin a file with a mark of its encoding.
  const fields = parseJson(text.replace(/^\ufeff/, ''), 'data')
  if (typeof fields !== 'object' || fields === null || Array.isArray(fields)) {
    throw new UsageFault('--data must be a JSON object')
  }
  return fields as Record<string, unknown>
}

function toValue(name: string, text: string, schema: Schema): unknown {
  if (text === 'null' && [schema.type].flat().includes('null')) return null
  if (isOfType(schema, 'string')) return text
  const wanted = [schema.type].flat().find((type) => type === 'number' || type === 'integer')
  if (wanted && !isNumber(text)) throw new UsageFault(`--${name} must be a number, not ${text}`)
  if (wanted) return Number(text)
  if (isOfType(schema, 'boolean') && text !== 'true' && text !== 'false') {
    throw new UsageFault(`--${name} must be true or false, not ${text}`)
  }
  return parseJson(text, name)
}

function isNumber(text: string): boolean {
  return text.trim() !== '' && Number.isFinite(Number(text))
}

function parseJson(text: string, name: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw new UsageFault(`--${name} is no JSON`)
  }
}

function isOfType({ type }: Schema, wanted: string): boolean {
  return [type].flat().includes(wanted)
}

function isListOfTexts(schema: Schema): boolean {
  return isOfType(schema, 'array') && isOfType(schema.items ?? {}, 'string')
}

function isPlain(schema: Schema): boolean {
  return ['string', 'number', 'integer', 'boolean'].some((type) => isOfType(schema, type))
}

/** Two pages of a list as one. */
function append(all: Record<string, unknown>, page: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(page).map(([name, value]) =>
      Array.isArray(value) ? [name, [...(all[name] as unknown[]), ...value]] : [name, value],
    ),
  )
}
