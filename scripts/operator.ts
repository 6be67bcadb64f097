/**
 * `node scripts/operator.ts`: the operator API from the command line. Exit codes: 0 done, 1 refused, 2 not called as it must be,
 * 3 the service or the database did not answer.
 */
import { readOperations, type ApiOperation } from './operator/api-operations.ts'
import { callOperation, commandOf, operationHelp } from './operator/call-operation.ts'
import { CommandFault, Refusal, UsageFault } from './operator/command-faults.ts'
import { importCatalogue, IMPORT_HELP } from './operator/import-catalogue.ts'
import { loadEnvFile } from '../src/config.ts'
import { oneLine } from '../src/one-line.ts'

const HELP = `Usage: node scripts/operator.ts <command> [--option value …]

Commands of its own:
  bootstrap-key    write the first operator key of an installation into the database, and show it once
  import           load tests, packages or prices from a CSV file, all or nothing

Options of every other command:
  --url URL        of the service (OPERATOR_URL; else that of demo.json in DATA_DIR; else 127.0.0.1 at OPERATOR_PORT, PORT or 8080)
  --key-file FILE  with the operator key (else OPERATOR_KEY; else the one in demo.json)
  --output FORMAT  json (default) or table
  --data JSON      the whole body, or @FILE, or - for standard input
  --all            every page of a list
  --help           what the command takes

Exit codes: 0 done, 1 refused, 2 not called as it must be, 3 no answer.
`

async function main(args: string[]): Promise<void> {
  loadEnvFile()
  const [command, ...rest] = args
  const asksForHelp = rest.includes('--help')
  // Loaded only where it is wanted: the driver of the database, and the contract, take longer than most calls.
  if (command === 'bootstrap-key') return (await import('./operator/bootstrap-key.ts')).bootstrapKey(rest)
  if (command === 'import') return asksForHelp ? print(IMPORT_HELP) : importCatalogue(rest)
  const operations = readOperations()
  if (command === undefined || command === '--help' || command === 'help') return print(HELP + listOf(operations))
  const operation = operations.find((known) => commandOf(known) === command)
  if (!operation) throw new UsageFault(`there is no command ${command}: see --help`)
  return asksForHelp ? print(operationHelp(operation)) : callOperation(operation, rest)
}

/** One line an operation, under the tags of the contract. */
function listOf(operations: ApiOperation[]): string {
  const byTag = Map.groupBy(operations, ({ tag }) => tag)
  const width = Math.max(...operations.map((operation) => commandOf(operation).length))
  return [...byTag]
    .map(([tag, ofTag]) => {
      const lines = ofTag.map((operation) => `  ${commandOf(operation).padEnd(width)}  ${operation.summary}`)
      return `\n${tag}:\n${lines.join('\n')}\n`
    })
    .join('')
}

function print(text: string): void {
  process.stdout.write(text)
}

/** Sets the exit code instead of exiting: what was written to a pipe still goes out. */
main(process.argv.slice(2)).catch((error) => {
  process.stderr.write(
    `operator: ${error instanceof CommandFault ? error.message.split('\n').map(oneLine).join('\n') : error.stack}\n`,
  )
  process.exitCode = error instanceof UsageFault ? 2 : error instanceof Refusal ? 1 : 3
})
