/**
 * `make -s sbom > lis.cdx.json`: what production installs, as a CycloneDX document. npm writes it for everything that is
 * installed, and the tools are taken out here: `npm sbom --omit=dev` (11.19) leaves out whatever a tool needs as well, Ajv and
 * nodemailer among them.
 */
import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { examineLockfile, type Lockfile } from './supply-chain.ts'

const ROOT = join(import.meta.dirname, '../..')

interface Component {
  'bom-ref': string
  group?: string
  name: string
  version: string
}

export interface Bom {
  bomFormat: string
  metadata: { component: Component }
  components: Component[]
  dependencies: { ref: string; dependsOn: string[] }[]
}

/** @throws when npm fails, or does not tell of a package that is in the lockfile */
export async function makeBom(): Promise<Bom> {
  const { name, version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as Component
  const lockfile = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as Lockfile
  const args = ['sbom', '--sbom-format=cyclonedx', '--sbom-type=application', '--package-lock-only']
  const { stdout } = await promisify(execFile)('npm', args, { cwd: ROOT, maxBuffer: 100_000_000 })
  const whole = JSON.parse(stdout) as Bom
  const needed = new Set(examineLockfile(lockfile).parts.map((part) => `${part.name}@${part.version}`))
  const components = whole.components.filter((one) => needed.delete(nameOf(one)))
  if (needed.size > 0) throw new Error(`npm does not tell of ${[...needed].join(', ')}`)
  const root = whole.metadata.component['bom-ref']
  const refs = new Set([root, ...components.map((one) => one['bom-ref'])])
  const dependencies = whole.dependencies
    .filter(({ ref }) => refs.has(ref))
    .map(({ ref, dependsOn }) => ({ ref, dependsOn: dependsOn.filter((other) => refs.has(other)) }))
  // npm takes the folder's name.
  const component = { ...whole.metadata.component, name, version }
  return { ...whole, metadata: { ...whole.metadata, component }, components, dependencies }
}

function nameOf({ group, name, version }: Component): string {
  return `${group ? `${group}/` : ''}${name}@${version}`
}

if (import.meta.main) process.stdout.write(`${JSON.stringify(await makeBom(), null, 2)}\n`)
