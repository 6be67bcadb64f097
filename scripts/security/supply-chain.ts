/**
 * `make supply-chain`, a part of `make check`: what the production installation is made of. How many packages, under which
 * licences, each with its hash in the lockfile and none with a script that runs at installation; and what the registry's
 * audit service knows of them. Exit 1 when one is off; a service that does not answer is a line, not a fault.
 *
 * `--list`: every package with its version and licence.
 */
import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

const ROOT = join(import.meta.dirname, '../..')

/**
 * Distinct names and versions. Aimed at: 120. Express and openapi-backend alone bring half of them, so that this is where it
 * stands, and a dependency that brings more is a decision: made here.
 */
const MOST_PACKAGES = 180

const LICENCES = [
  'MIT',
  'MIT-0',
  'ISC',
  '0BSD',
  'BSD-2-Clause',
  'BSD-3-Clause',
  'Apache-2.0',
  'PSF-2.0',
  'BlueOak-1.0.0',
]
/** Packages whose description has no licence where npm looks for it; it is in their own files, as read on 21 November 2026. */
const LICENCE_ELSEWHERE: Record<string, string> = {
  'passport-http-bearer': 'MIT',
  'passport-strategy': 'MIT',
  pause: 'MIT',
}

/** As `package-lock.json` has it. */
interface LockedPackage {
  version: string
  license?: string
  integrity?: string
  dev?: boolean
  hasInstallScript?: boolean
}

export interface Lockfile {
  packages: Record<string, LockedPackage>
}

export interface Part {
  name: string
  version: string
  licence: string
}

/** @returns what production installs, sorted, and what is not as it must be */
export function examineLockfile({ packages }: Lockfile, mostPackages = MOST_PACKAGES) {
  const faults: string[] = []
  const parts = new Map<string, Part>()
  for (const [path, locked] of Object.entries(packages)) {
    if (path === '') continue
    const name = path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length)
    const { version, integrity, dev, hasInstallScript } = locked
    if (!integrity) faults.push(`${name} ${version} has no hash in the lockfile`)
    if (dev) continue
    const licence = locked.license ?? LICENCE_ELSEWHERE[name] ?? 'unknown'
    if (hasInstallScript) faults.push(`${name} ${version} runs a script when it is installed`)
    if (!LICENCES.includes(licence)) faults.push(`${name} ${version} has the licence ${licence}`)
    parts.set(`${name}@${version}`, { name, version, licence })
  }
  if (parts.size > mostPackages) faults.push(`${parts.size} production packages, more than ${mostPackages}`)
  return { parts: [...parts.values()].sort((a, b) => (a.name < b.name ? -1 : 1)), faults }
}

export type AuditVerdict = { answered: false; why: string } | { answered: true; counts: Record<string, number> }

/** How long a check may wait for a registry. */
const AUDIT_MS = 20_000

/** Asks the registry that npm is set to. */
export async function audit(env: NodeJS.ProcessEnv = process.env, cwd = ROOT): Promise<AuditVerdict> {
  const args = ['audit', '--omit=dev', '--json', '--fetch-retries=0', `--fetch-timeout=${AUDIT_MS / 2}`]
  const output = await new Promise<{ stdout: string; message: string }>((resolve) => {
    const options = { env, cwd, timeout: AUDIT_MS, maxBuffer: 50_000_000 }
    // npm ends with 1 for findings and for faults alike: what it says tells them apart.
    execFile('npm', args, options, (error, stdout) => resolve({ stdout, message: error?.message ?? '' }))
  })
  return readAudit(output.stdout) ?? { answered: false, why: output.message.split('\n')[0] || 'npm said nothing' }
}

/** @returns undefined for what is no JSON */
export function readAudit(stdout: string): AuditVerdict | undefined {
  let report: {
    metadata?: { vulnerabilities?: Record<string, number> }
    message?: string
    error?: { summary?: string }
  }
  try {
    report = JSON.parse(stdout)
  } catch {
    return undefined
  }
  const counts = report.metadata?.vulnerabilities
  if (counts) return { answered: true, counts }
  return { answered: false, why: report.message || report.error?.summary || 'its answer is no report' }
}

function licencesOf(parts: Part[]): string {
  const counts = new Map<string, number>()
  for (const { licence } of parts) counts.set(licence, (counts.get(licence) ?? 0) + 1)
  return [...counts].sort((a, b) => b[1] - a[1]).map(([licence, n]) => `${licence} ${n}`).join(', ') // prettier-ignore
}

async function main(): Promise<boolean> {
  const lockfile = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as Lockfile
  const { parts, faults } = examineLockfile(lockfile)
  if (process.argv.includes('--list')) {
    for (const { name, version, licence } of parts) console.log(`${name} ${version} ${licence}`)
  }
  console.log(`production packages=${parts.length} (at most ${MOST_PACKAGES}) licences: ${licencesOf(parts)}`)
  const verdict = await audit()
  if (!verdict.answered) {
    console.log(`audit: SKIPPED, the registry's audit service could not be asked: ${verdict.why}`)
  } else {
    const { critical = 0, high = 0, moderate = 0, low = 0 } = verdict.counts
    console.log(`audit: critical=${critical} high=${high} moderate=${moderate} low=${low}`)
    if (critical + high > 0) faults.push(`${critical + high} findings of the audit: npm audit --omit=dev`)
  }
  for (const fault of faults) console.log(`supply chain: ${fault}`)
  return faults.length === 0
}

if (import.meta.main) process.exit((await main()) ? 0 : 1)
