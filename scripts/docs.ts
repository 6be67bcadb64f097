/**
 * `make docs`: renders both contracts into the data folder, where every API process of it serves them at `/docs`.
 */
import { ConfigError, loadEnvFile, readConfig } from '../src/config.ts'
import { referenceDirOf } from '../src/reference-pages.ts'
import { onStopRequest } from '../src/stop-request.ts'
import { buildReference } from './docs-build.ts'
import { StartFault } from './processes.ts'

try {
  loadEnvFile()
  const { dataDir } = readConfig()
  const stopping = new AbortController()
  onStopRequest((why) => stopping.abort(new StartFault(why)))
  const built = await buildReference(dataDir, stopping.signal)
  for (const page of built) console.log(`docs: ${page}`)
  if (built.length === 0) console.log(`docs: ${referenceDirOf(dataDir)} is up to date`)
} catch (error) {
  if (!(error instanceof ConfigError || error instanceof StartFault)) throw error
  console.error(`docs: ${error.message}`)
  process.exit(1)
}
