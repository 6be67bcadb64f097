/**
 * Rules of the code that no compiler knows. One line for each breach; exit code 1 when there is any.
 *
 *     node scripts/check-rules.ts [folder of another tree]
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import ts from 'typescript'

const ROOT = resolve(process.argv[2] ?? join(import.meta.dirname, '..'))
const FOLDERS = ['src', 'daemon', 'db', 'scripts', 'test']

/** Packages that stay behind a file, so that replacing one changes little. */
const ONLY_IMPORTERS: Record<string, string[]> = {
  'openapi-backend': ['src/api.ts'],
  'prom-client': ['src/metrics.ts'],
  '@opentelemetry/sdk-trace': ['src/tracing-sdk.ts'],
  '@opentelemetry/exporter-trace-otlp-http': ['src/tracing-sdk.ts'],
  '@opentelemetry/api': ['src/tracing-sdk.ts'],
  agenda: ['daemon/agenda.ts', 'daemon/agenda-memory-store.ts', 'daemon/mongo-job-store.ts'],
}

/** Settings come from the first; the second tells a library what it asks the environment for, and reads nothing. */
const KNOWS_THE_ENVIRONMENT = ['src/config.ts', 'daemon/agenda-debug.ts']

/** The one file whose SQL names the server's clock. */
const KNOWS_THE_SERVERS_CLOCK = 'db/server-time.ts'
/** Functions of MySQL and MariaDB that read a clock. Those in the second half do so without brackets too, and with a digit in them. */
const CLOCK_IN_SQL =
  /\b(?:NOW|SYSDATE|CURDATE|CURTIME|UNIX_TIMESTAMP)\s*\(\s*\d?\s*\)|\b(?:CURRENT_TIMESTAMP|CURRENT_DATE|CURRENT_TIME|LOCALTIME|LOCALTIMESTAMP|UTC_TIMESTAMP|UTC_DATE|UTC_TIME)\b/i

/** Tools that want a default export. */
const DEFAULT_EXPORTS = ['test/vitest.config.ts', 'test/support/global-setup.ts']

function check(path: string): string[] {
  const source = ts.createSourceFile(path, readFileSync(join(ROOT, path), 'utf8'), ts.ScriptTarget.ES2024, true)
  const breaches: string[] = []
  const folder = path.split('/')[0]!
  const isShipped = folder === 'src' || folder === 'daemon'
  const breach = (node: ts.Node, text: string) => {
    breaches.push(`${path}:${source.getLineAndCharacterOfPosition(node.getStart()).line + 1} ${text}`)
  }

  const visitImport = (node: ts.Node, specifier: string, isTypeOnly: boolean) => {
    if (!specifier.startsWith('.')) {
      const only = ONLY_IMPORTERS[specifier]
      if (only && isShipped && !only.includes(path) && !isTypeOnly)
        breach(node, `${specifier} is imported by ${only.join(' and ')} alone`)
      return
    }
    const target = relative(ROOT, resolve(ROOT, dirname(path), specifier)).split('/')[0]
    if (folder === 'src' && target === 'daemon') breach(node, 'src/ must not import daemon/')
    if (target === 'scripts' && folder !== 'scripts' && folder !== 'test')
      breach(node, 'nothing shipped imports scripts/')
    if (target === 'test' && folder !== 'test') breach(node, 'only tests import test/')
  }

  const visit = (node: ts.Node): void => {
    if ((ts.isImportDeclaration(node) || ts.isExportDeclaration(node)) && node.moduleSpecifier) {
      const isTypeOnly = ts.isImportDeclaration(node)
        ? node.importClause?.phaseModifier === ts.SyntaxKind.TypeKeyword
        : node.isTypeOnly
      visitImport(node, (node.moduleSpecifier as ts.StringLiteral).text, isTypeOnly)
    }
    if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword) {
      const [argument] = node.arguments
      if (argument && ts.isStringLiteral(argument)) visitImport(node, argument.text, false)
    }
    if (isDefaultExport(node) && !DEFAULT_EXPORTS.includes(path)) breach(node, 'named exports only')
    if (isShipped && path !== 'src/clock.ts') {
      if (ts.isPropertyAccessExpression(node) && node.getText() === 'Date.now')
        breach(node, 'the time comes from src/clock.ts: no Date.now()')
      if (ts.isNewExpression(node) && node.expression.getText() === 'Date' && !node.arguments?.length) {
        breach(node, 'the time comes from src/clock.ts: no new Date() without an argument')
      }
    }
    if ((isShipped || folder === 'db') && path !== KNOWS_THE_SERVERS_CLOCK && namesTheServersClock(node)) {
      breach(node, `the server's time comes from ${KNOWS_THE_SERVERS_CLOCK}: no clock in SQL`)
    }
    if (
      isShipped &&
      !KNOWS_THE_ENVIRONMENT.includes(path) &&
      ts.isPropertyAccessExpression(node) &&
      node.getText() === 'process.env'
    ) {
      breach(node, 'settings come from src/config.ts: no process.env')
    }
    ts.forEachChild(node, visit)
  }
  visit(source)
  return breaches
}

/** Also knex's own `fn.now()`. */
function namesTheServersClock(node: ts.Node): boolean {
  if (ts.isPropertyAccessExpression(node)) return /\.fn\??\.now$/.test(node.getText())
  return (ts.isStringLiteralLike(node) || ts.isTemplateLiteralToken(node)) && CLOCK_IN_SQL.test(node.text)
}

function isDefaultExport(node: ts.Node): boolean {
  if (ts.isExportAssignment(node)) return true
  return (
    ts.canHaveModifiers(node) &&
    (ts.getModifiers(node)?.some(({ kind }) => kind === ts.SyntaxKind.DefaultKeyword) ?? false)
  )
}

const files = FOLDERS.filter((folder) => existsSync(join(ROOT, folder)))
  .flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.ts'))
      .map((name) => join(folder, name)),
  )
  .filter((path) => !path.startsWith('src/generated/'))
const breaches = files.flatMap(check)
for (const line of breaches) console.log(line)
process.exit(breaches.length > 0 ? 1 : 0)
