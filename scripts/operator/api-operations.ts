/**
 * The operations of the operator API, read from its contract: each is a command, so that none can be missing.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parse } from 'yaml'

export interface Schema {
  $ref?: string
  type?: string | string[]
  description?: string
  enum?: string[]
  required?: string[]
  properties?: Record<string, Schema>
  items?: Schema
  oneOf?: Schema[]
}

export interface ApiParameter {
  name: string
  in: 'path' | 'query' | 'header'
  required: boolean
  description: string
}

export interface ApiOperation {
  operationId: string
  tag: string
  summary: string
  description: string
  method: string
  path: string
  parameters: ApiParameter[]
  /** Of the body; undefined: it takes none. */
  body: { required: string[]; properties: Record<string, Schema> } | undefined
  /** Whether the body is a PDF. */
  takesFile: boolean
  /** Whether a repeat under the same Idempotency-Key gets the first answer. */
  takesKey: boolean
}

type Reference = { $ref?: string }
type Document = Record<string, any>

const CONTRACT = join(import.meta.dirname, '..', '..', 'openapi', 'operator.yaml')

/** In the order of the contract. */
export function readOperations(): ApiOperation[] {
  const document = parse(readFileSync(CONTRACT, 'utf8')) as Document
  return Object.entries(document.paths as Record<string, Document>).flatMap(([path, item]) =>
    Object.entries(item).map(([method, operation]) => toOperation(document, method, path, operation)),
  )
}

function toOperation(document: Document, method: string, path: string, operation: Document): ApiOperation {
  const parameters: ApiParameter[] = (operation.parameters ?? []).map((sent: Reference) => {
    const parameter = resolve<ApiParameter>(document, sent)
    return { ...parameter, required: parameter.required ?? false }
  })
  const schema = operation.requestBody?.content['application/json']?.schema
  const body = schema && resolve<Schema>(document, schema)
  return {
    operationId: operation.operationId,
    tag: operation.tags[0],
    summary: operation.summary,
    description: operation.description,
    method: method.toUpperCase(),
    path,
    takesFile: 'application/pdf' in (operation.requestBody?.content ?? {}),
    takesKey: parameters.some(({ name }) => name === 'Idempotency-Key'),
    parameters: parameters.filter((parameter) => parameter.in !== 'header'),
    body: body && {
      required: body.required ?? [],
      properties: Object.fromEntries(
        Object.entries(body.properties ?? {}).map(([name, property]) => [
          name,
          withItems(document, resolve<Schema>(document, property as Schema)),
        ]),
      ),
    },
  }
}

function withItems(document: Document, schema: Schema): Schema {
  return schema.items ? { ...schema, items: resolve<Schema>(document, schema.items) } : schema
}

/** What stands beside a reference counts more. */
function resolve<T extends object>(document: Document, object: Reference): T {
  if (object.$ref === undefined) return object as T
  const { $ref, ...rest } = object
  const target = $ref
    .slice(2)
    .split('/')
    .reduce((value, key) => value[key], document)
  return { ...resolve<T>(document, target), ...rest }
}
