/**
 * `import`: a CSV file into a lab's catalogue, all or nothing. What the service refuses and what is no row at all are told
 * together, each with its line, and then nothing is changed.
 */
import { readFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { formatOf } from './call-operation.ts'
import { readCatalogueFile, type ImportKind, type ImportRow, type RefusedLine } from './catalogue-file.ts'
import { Refusal, UsageFault } from './command-faults.ts'
import { createOperatorClient, type OperatorClient } from './operator-client.ts'
import { oneLine } from '../../src/one-line.ts'
import { toJson } from './print-answer.ts'

export const IMPORT_HELP = `Usage: node scripts/operator.ts import <kind> <file.csv> --lab LABID [--dry-run] [--delimiter ';'] [--output json]

Kinds and their columns (the header names them, in any order; the file is UTF-8):
  tests             code, name, cost, serviceID (optional; without the column it stays, an empty cell removes it)
  packages          code, name, total, tests (codes of tests, separated by ;)
  party-prices      partyId, test or package (a code), price
  rate-list-prices  rateListType, test or package (a code), price

What the lab has already, by code, is changed; everything else is created; nothing is removed. When any line is refused, or with
--dry-run, nothing is changed. A file has at most 25,000 lines, and its packages at most 100,000 tests in all: divide a larger one.
Also takes --url and --key-file.
`

const KINDS: Record<string, ImportKind> = {
  tests: 'tests',
  packages: 'packages',
  'party-prices': 'party_prices',
  'rate-list-prices': 'rate_list_prices',
}

const ROWS_A_CALL = 100
/** Of the 256 KB that a body may have, the rows; counted in characters of JSON, each at most 3 bytes of a body of its own. */
const CHARACTERS_A_CALL = 80_000
const CALLS_AT_ONCE = 3

export async function importCatalogue(args: string[]): Promise<void> {
  const { kind, file, labID, dryRun, delimiter, output, ...connection } = readArguments(args)
  const { rows, refused } = readCatalogueFile(readBytes(file), kind, delimiter)
  if (rows.length === 0 && refused.length === 0) throw new Refusal('the file has no rows')
  const client = createOperatorClient(connection)
  const imports = `/operator/labs/${encodeURIComponent(labID)}/imports`
  const { importId } = await client.call('POST', imports, { body: { kind }, repeatable: true })
  const path = `${imports}/${importId}`
  try {
    await sendRows(client, path, rows)
    const validated =
      rows.length === 0 ? { refused: 0 } : await client.call('POST', `${path}/validate`, { repeatable: true })
    const all = [...refused, ...(validated.refused > 0 ? await listRefusals(client, path) : [])]
    if (all.length > 0) return refuse(all, rows.length + refused.length, output)
    const done = dryRun
      ? validated
      : await client.call('POST', `${path}/commit`, { body: { rows: rows.length }, repeatable: true })
    report(done, dryRun, output)
    if (dryRun) await discard(client, path)
  } catch (error) {
    await discard(client, path)
    throw error
  }
}

function readArguments(args: string[]) {
  const options = {
    lab: { type: 'string' },
    'dry-run': { type: 'boolean' },
    delimiter: { type: 'string' },
    output: { type: 'string' },
    url: { type: 'string' },
    'key-file': { type: 'string' },
  } as const
  const { values, positionals } = parse()
  const [kindName, file, surplus] = positionals
  const kind = KINDS[kindName ?? '']
  if (!kind || !file || surplus !== undefined) throw new UsageFault('import takes a kind and a file: see import --help')
  if (!values.lab) throw new UsageFault('--lab is required: the labID of the lab')
  const { delimiter = ',' } = values
  if ([...delimiter].length !== 1) throw new UsageFault('--delimiter must be one character')
  return {
    kind,
    file,
    labID: values.lab,
    dryRun: values['dry-run'] ?? false,
    delimiter,
    output: values.output === undefined ? ('table' as const) : formatOf(values.output),
    url: values.url,
    keyFile: values['key-file'],
  }

  function parse() {
    try {
      return parseArgs({ args, options, strict: true, allowPositionals: true })
    } catch (error) {
      throw new UsageFault(`${(error as Error).message}: see import --help`)
    }
  }
}

function readBytes(file: string): Buffer {
  try {
    return readFileSync(file)
  } catch (error) {
    throw new UsageFault(`${file} can't be read (${(error as NodeJS.ErrnoException).code})`)
  }
}

/** A few calls at once; a line that arrives twice replaces itself, so each is made again when there is no answer. */
async function sendRows(client: OperatorClient, path: string, rows: ImportRow[]): Promise<void> {
  const chunks = chunksOf(rows)
  const show = progressOf(rows.length)
  let sent = 0
  const sendNext = async (): Promise<void> => {
    for (let chunk = chunks.shift(); chunk; chunk = chunks.shift()) {
      await client.call('PUT', `${path}/rows`, { body: { rows: chunk }, repeatable: true })
      sent += chunk.length
      show(sent)
    }
  }
  await Promise.all(Array.from({ length: CALLS_AT_ONCE }, sendNext))
}

function chunksOf(rows: ImportRow[]): ImportRow[][] {
  const chunks: ImportRow[][] = []
  let characters = 0
  for (const row of rows) {
    const length = JSON.stringify(row).length
    const last = chunks.at(-1)
    if (last && last.length < ROWS_A_CALL && characters + length <= CHARACTERS_A_CALL) last.push(row)
    else chunks.push([row])
    characters = chunks.at(-1)!.length === 1 ? length : characters + length
  }
  return chunks
}

/** One line that counts up on a terminal; elsewhere a line for each tenth. On standard error: the report is the output. */
function progressOf(total: number): (sent: number) => void {
  let shown = 0
  return (sent) => {
    const text = `sent ${sent} of ${total} rows`
    if (process.stderr.isTTY) process.stderr.write(`\r${text}${sent === total ? '\n' : ''}`)
    else if (sent === total || sent - shown >= total / 10) {
      shown = sent
      process.stderr.write(`${text}\n`)
    }
  }
}

async function listRefusals(client: OperatorClient, path: string): Promise<RefusedLine[]> {
  const refusals: RefusedLine[] = []
  let cursor: string | null = null
  do {
    const query: Record<string, string> = { limit: '100', ...(cursor === null ? {} : { cursor }) }
    const page: { refusals: RefusedLine[]; nextCursor: string | null } = await client.call('GET', `${path}/refusals`, {
      query,
      repeatable: true,
    })
    refusals.push(...page.refusals)
    cursor = page.nextCursor
  } while (cursor !== null)
  return refusals
}

/** @throws always, once every refused line has been told */
function refuse(refused: RefusedLine[], total: number, output: 'json' | 'table'): never {
  const byLine = refused.sort((a, b) => a.line - b.line)
  const lines = byLine.map(({ line, fault }) => `line ${line}: ${oneLine(fault)}\n`).join('')
  process.stdout.write(output === 'json' ? toJson({ refused: byLine }) : lines)
  throw new Refusal(`${refused.length} of ${total} lines are refused, nothing was changed`)
}

function report(
  done: { rows: number; created: number; updated: number },
  dryRun: boolean,
  output: 'json' | 'table',
): void {
  const { rows, created, updated } = done
  const text = `${rows} rows${dryRun ? ' would be' : ''} taken: ${created} created, ${updated} changed`
  process.stdout.write(
    output === 'json' ? `${JSON.stringify({ dryRun, rows, created, updated }, null, 2)}\n` : `${text}\n`,
  )
}

/** Tidiness only: what is not discarded is dropped a day later. */
async function discard(client: OperatorClient, path: string): Promise<void> {
  await client.call('POST', `${path}/discard`).catch(() => {})
}
