/**
 * `demo.json` in the data folder: what a person, a test or a tool needs to call the demo accounts.
 */
import { closeSync, fsyncSync, openSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { isDuplicate, type Database } from '../db/connection.ts'
import { loadDemoData, type DemoData, type DemoSecrets } from '../db/seeds/demo-data.ts'
import { DEMO_REPORT_IDS, writeDemoReports } from './demo-reports.ts'

/**
 * Loads the demo data where it is missing, and the files of its reports. The secrets of an existing `demo.json` stay while they work.
 * @throws what the database throws
 */
export async function prepareDemoData(database: Database, dataDir: string): Promise<DemoData> {
  const known = readSecrets(dataDir)
  const load = async () => {
    const now = new Date(await database.readTimeMs())
    return database.transaction((trx) => loadDemoData(trx, now, known))
  }
  const data = await load().catch((error) => {
    // Two first starts at once on one database: the other's rows are there now.
    if (isDuplicate(error)) return load()
    throw error
  })
  // Not of those that are gone, with their patient.
  const reports = await database.knex('reports').whereIn('id', DEMO_REPORT_IDS).pluck('id')
  writeDemoReports(dataDir, new Set(reports))
  return data
}

export interface DemoAddresses {
  baseUrl: string
  /** Only where this machine has the operator API at another address. */
  operatorUrl?: string
}

/** Written aside and renamed: a reader sees the old file or the new one. @returns its path */
export function writeDemoFile(dataDir: string, addresses: DemoAddresses, data: DemoData): string {
  const file = join(dataDir, 'demo.json')
  const draft = `${file}.${process.pid}`
  // Secrets of accounts without anybody's data, yet nobody else's business on a shared machine.
  const descriptor = openSync(draft, 'w', 0o600)
  writeFileSync(descriptor, `${JSON.stringify({ ...addresses, ...data }, null, 2)}\n`)
  fsyncSync(descriptor)
  closeSync(descriptor)
  renameSync(draft, file)
  return file
}

function readSecrets(dataDir: string): DemoSecrets {
  try {
    const demo = JSON.parse(readFileSync(join(dataDir, 'demo.json'), 'utf8')) as Partial<DemoData>
    const textOr = (value: unknown) => (typeof value === 'string' ? value : undefined)
    return {
      operatorKey: textOr(demo.operatorKey),
      catchAll: textOr(demo.catchAll?.clientSecret),
      otherCatchAll: textOr(demo.otherCatchAll?.clientSecret),
      partyScoped: textOr(demo.partyScoped?.clientSecret),
    }
  } catch {
    // Missing or broken: new secrets are issued.
    return {}
  }
}

/** What `make run` wrote. @throws one line that says what to do when it is not there */
export function readDemoFile(dataDir: string): DemoData & { baseUrl: string } {
  const file = join(dataDir, 'demo.json')
  try {
    return JSON.parse(readFileSync(file, 'utf8'))
  } catch {
    throw new Error(`there is no usable ${file}: start the service with \`make run\` in another terminal first`)
  }
}
