/**
 * Holds answers and payloads to the contract: a documented status, the content type, the headers, the schema.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parse } from 'yaml'
import { createAjv } from '../../src/api.ts'

export interface Answer {
  status: number
  headers: Record<string, string | string[] | undefined>
  body: unknown
}

interface ResponseObject {
  $ref?: string
  content?: Record<string, object>
  headers?: Record<string, { $ref?: string; required?: boolean }>
}

export interface ContractOperation {
  operationId: string
  method: string
  path: string
  needsToken: boolean
  takesBody: boolean
  responses: Record<string, ResponseObject>
}

type Document = { paths: Record<string, Record<string, Omit<ContractOperation, 'method' | 'path'>>> } & Record<
  string,
  unknown
>

export class ContractChecker {
  readonly operations: ContractOperation[]
  readonly document: Document
  readonly #ajv = createAjv({ allErrors: true, strict: false })

  constructor(file: 'client.yaml' | 'operator.yaml') {
    const path = join(import.meta.dirname, '..', '..', 'openapi', file)
    this.document = parse(readFileSync(path, 'utf8'))
    this.#ajv.addSchema(this.document, 'contract')
    this.operations = Object.entries(this.document.paths).flatMap(([path, item]) =>
      Object.entries(item).map(([method, operation]) => ({
        ...operation,
        method: method.toUpperCase(),
        path,
        needsToken: (operation as { security?: unknown[] }).security?.length !== 0,
        takesBody: 'requestBody' in operation,
      })),
    )
  }

  operationOf(method: string, path: string): ContractOperation | undefined {
    return this.operations.find((known) => known.method === method && matches(known.path, path))
  }

  /** @throws when the contract does not have this answer to this request */
  check(method: string, path: string, answer: Answer): void {
    const where = `${method} ${path} -> ${answer.status}`
    const operation = this.operationOf(method, path)
    if (!operation) {
      // Not in the contract: its prose says that these two are answered in the error shape.
      if (answer.status !== 404 && answer.status !== 405) throw new Error(`${where}: there is no such operation`)
      return this.checkSchema('#/components/schemas/Error', answer.body, where)
    }
    const pointer = `#/paths/${escaped(operation.path)}/${method.toLowerCase()}/responses/${answer.status}`
    const [response, at] = this.#resolve(operation.responses[answer.status], pointer)
    if (!response) throw new Error(`${where}: this status is not documented: ${JSON.stringify(answer.body)}`)
    for (const [name, header] of Object.entries(response.headers ?? {})) {
      const [resolved] = this.#resolve(header, '')
      if (resolved?.required && answer.headers[name.toLowerCase()] === undefined) {
        throw new Error(`${where}: the header ${name} is missing`)
      }
    }
    if (!response.content) return
    if (!/^application\/json(;|$)/.test(String(answer.headers['content-type']))) {
      throw new Error(`${where}: content type ${answer.headers['content-type']}`)
    }
    this.checkSchema(`${at}/content/application~1json/schema`, answer.body, where)
  }

  /** @param pointer into the document, such as `#/components/schemas/LeadCreatedEvent` */
  checkSchema(pointer: string, value: unknown, where = pointer): void {
    const validate = this.#ajv.getSchema(`contract${pointer}`)
    if (!validate) throw new Error(`the contract has nothing at ${pointer}`)
    if (validate(value)) return
    const faults = validate.errors!.map(({ instancePath, message }) => `${instancePath} ${message}`).join('; ')
    throw new Error(`${where}: ${faults}: ${JSON.stringify(value).slice(0, 2000)}`)
  }

  #resolve<T extends { $ref?: string }>(object: T | undefined, pointer: string): [T | undefined, string] {
    if (!object?.$ref) return [object, pointer]
    const target = object.$ref
      .slice(2)
      .split('/')
      .reduce((value, key) => (value as Record<string, unknown>)[key], this.document as unknown)
    return [target as T, object.$ref]
  }
}

function matches(template: string, path: string): boolean {
  const pattern = template.replace(/[.*+?^$()|[\]\\]/g, '\\$&').replace(/\{[^}]+\}/g, '[^/]+')
  return new RegExp(`^${pattern}$`).test(path)
}

function escaped(path: string): string {
  return encodeURIComponent(path.replaceAll('~', '~0').replaceAll('/', '~1'))
}
