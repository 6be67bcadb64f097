/**
 * `make migrate`: brings the schema up to this version and exits.
 */
import { migrate, MigrationFault } from '../db/migrate.ts'
import { ConfigError, loadEnvFile, migrateSetting, readConfig } from '../src/config.ts'
import { createLogger } from '../src/logger.ts'

async function main(): Promise<void> {
  loadEnvFile()
  const config = readConfig()
  const say = (line: string) => console.log(`migrate: ${line}`)
  try {
    const log = createLogger('migrate', config.logLevel)
    const applied = await migrate(config.mysqlMigrateUrl, log, say, migrateSetting(config))
    say(applied === 0 ? 'the schema is up to date' : `done, ${applied} applied`)
  } catch (error) {
    if (error instanceof MigrationFault && config.privateDatabase) {
      throw new MigrationFault(`${error.message} (no MYSQL_URL is set: \`make run\` starts the private database)`)
    }
    throw error
  }
}

main().then(
  () => process.exit(0),
  (error) => {
    const isExpected = error instanceof ConfigError || error instanceof MigrationFault
    console.error(isExpected ? `migrate: ${error.message}` : error)
    process.exit(1)
  },
)
