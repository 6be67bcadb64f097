/**
 * Writes what the API needs of each contract, as JSON: routes, and what a request may hold. Read in a fiftieth of the time that
 * the YAML takes, which also has every answer. Part of `make types`.
 *
 * `node scripts/contract-requests.ts FOLDER`
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parse } from 'yaml'

const CONTRACTS = join(import.meta.dirname, '..', 'openapi')

type Contract = {
  paths: Record<string, Record<string, { responses?: unknown; callbacks?: unknown }>>
  components: Record<string, unknown>
} & Record<string, unknown>

function requestsOf({ webhooks: _, ...contract }: Contract): Contract {
  for (const operation of Object.values(contract.paths).flatMap((item) => Object.values(item))) {
    delete operation.responses
    delete operation.callbacks
  }
  for (const kind of ['responses', 'headers', 'examples']) delete contract.components[kind]
  return contract
}

/**
 * A reference that says more beside itself, as OpenAPI 3.1 allows, becomes what it refers to with that in it: openapi-backend
 * would lose what is said beside.
 */
function withSiblings(value: unknown, contract: Contract): unknown {
  if (Array.isArray(value)) return value.map((item) => withSiblings(item, contract))
  if (typeof value !== 'object' || value === null) return value
  const { $ref, ...beside } = value as Record<string, unknown>
  const own = Object.fromEntries(Object.entries(beside).map(([name, item]) => [name, withSiblings(item, contract)]))
  if ($ref === undefined) return own
  if (Object.keys(own).length === 0) return value
  return { ...own, ...omit(withSiblings(referred($ref as string, contract), contract) as object, Object.keys(own)) }
}

function referred(pointer: string, contract: Contract): unknown {
  let found: any = contract
  for (const part of pointer.split('/').slice(1)) found = found[part.replaceAll('~1', '/').replaceAll('~0', '~')]
  return found
}

function omit(value: object, names: string[]): object {
  return Object.fromEntries(Object.entries(value).filter(([name]) => !names.includes(name)))
}

const folder = process.argv[2]
if (!folder) throw new Error('usage: node scripts/contract-requests.ts FOLDER')
for (const name of ['client', 'operator']) {
  const contract = parse(readFileSync(join(CONTRACTS, `${name}.yaml`), 'utf8')) as Contract
  writeFileSync(
    join(folder, `${name}.json`),
    `${JSON.stringify(withSiblings(requestsOf(contract), contract), null, 1)}\n`,
  )
}
