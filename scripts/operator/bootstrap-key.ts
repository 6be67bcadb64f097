/**
 * The first key of an installation: there is none yet that could create it over the API, so it goes straight into the database.
 * Whoever can do this has the database's password anyhow.
 */
import { parseArgs } from 'node:util'
import { describeConnectionFault, isDatabaseRefused } from '../../db/connection-fault.ts'
import { connectDatabase, isConnectionFault } from '../../db/connection.ts'
import { schemaIsCurrent } from '../../db/migrate.ts'
import { insertAuditEntry } from '../../src/audit/audit-repository.ts'
import { insertOperatorKey } from '../../src/auth/operator-keys-repository.ts'
import { ConfigError, readConfig } from '../../src/config.ts'
import { hashSecret, newSecret } from '../../src/crypto.ts'
import { newId } from '../../src/ids.ts'
import { NoAnswer, UsageFault } from './command-faults.ts'

const HELP = `Usage: node scripts/operator.ts bootstrap-key --name NAME

Writes an admin key for all accounts into the database that MYSQL_URL names, and shows it once, as JSON. Meant for the first
key; the others are created by it: create-operator-key.
`

export async function bootstrapKey(args: string[]): Promise<void> {
  if (args.includes('--help')) return void process.stdout.write(HELP)
  const name = nameOf(args)
  const url = mysqlUrl()
  const database = connectDatabase(url, 1)
  try {
    const nowMs = await database.readTimeMs()
    if (!(await schemaIsCurrent(database.knex)))
      throw new UsageFault('the database has no current schema: migrate it first')
    const createdAt = new Date(nowMs)
    const key = newSecret()
    const record = { id: newId(nowMs), name, role: 'admin' as const, accountId: null }
    await database.transaction(async (trx) => {
      await insertOperatorKey(trx, { ...record, keyHash: hashSecret(key), createdAt })
      await insertAuditEntry(trx, {
        id: newId(nowMs),
        accountId: null,
        operatorKeyId: record.id,
        operation: 'bootstrap-key',
        targets: { keyId: record.id },
        requestId: newId(nowMs),
        createdAt,
      })
    })
    const { id, ...rest } = record
    process.stdout.write(
      `${JSON.stringify({ keyId: id, ...rest, createdAt: createdAt.toISOString(), key }, null, 2)}\n`,
    )
  } catch (error) {
    // A sentence, and not the statement with the key's hash.
    if (isConnectionFault(error) || isDatabaseRefused(error)) throw new NoAnswer(describeConnectionFault(error, url))
    throw error
  } finally {
    await database.close()
  }
}

function nameOf(args: string[]): string {
  try {
    const { name } = parseArgs({ args, options: { name: { type: 'string' } } }).values
    if (name && [...name].length <= 200) return name
  } catch (error) {
    throw new UsageFault((error as Error).message)
  }
  throw new UsageFault('--name is required: who or what uses the key, in at most 200 characters')
}

function mysqlUrl(): string {
  try {
    return readConfig().mysqlUrl
  } catch (error) {
    if (error instanceof ConfigError) throw new UsageFault(error.message)
    throw error
  }
}
