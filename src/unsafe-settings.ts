/**
 * Settings that production is not to be run with, because everybody knows them or because they open the process. Pure.
 */

/** Fewer different bytes than any 32 random ones have: 16 or less is less likely than 1 in 10^12. */
const FEWEST_DIFFERENT_BYTES = 12
/** They stand in the README, to be replaced. */
const EXAMPLE_PASSWORDS = new Set(['a-password', 'migrate-password', 'api-password', 'daemon-password', 'password'])
const URLS = ['MYSQL_URL', 'MYSQL_MIGRATE_URL', 'MYSQL_DAEMON_URL', 'SMTP_URL', 'MONGODB_URL']
const DEBUGGER = /(^|\s)--(inspect|debug)(-brk|-wait)?(=|\s|$)/

/**
 * @param debuggerUrl where one listens, however it was asked to
 * @returns a sentence for each; the values themselves are never repeated
 */
export function findUnsafeSettings(
  env: NodeJS.ProcessEnv,
  secretsKey: Buffer,
  execArgv: readonly string[],
  debuggerUrl?: string,
): string[] {
  return [
    ...(secretsKey.length >= 32 && new Set(secretsKey).size < FEWEST_DIFFERENT_BYTES
      ? ['SECRETS_KEY is not random: make one with openssl rand -base64 32']
      : []),
    ...URLS.filter((name) => EXAMPLE_PASSWORDS.has(passwordOf(env[name]))).map(
      (name) => `${name} has the password of an example: set one of your own`,
    ),
    ...(debuggerUrl !== undefined || opensDebugger(execArgv.join(' ')) || opensDebugger(env.NODE_OPTIONS ?? '')
      ? ['the debugger is open: start without --inspect, also in NODE_OPTIONS']
      : []),
    ...['NODE_DEBUG', 'DEBUG'].flatMap((name) =>
      env[name]?.trim() ? [`${name} makes libraries print what they handle: unset it`] : [],
    ),
  ]
}

/** Node takes quotes around an option, and underscores for its hyphens. */
function opensDebugger(options: string): boolean {
  return DEBUGGER.test(options.replaceAll('"', ' ').replaceAll('_', '-'))
}

function passwordOf(url: string | undefined): string {
  const text = url?.trim() ?? ''
  try {
    return decodeURIComponent(new URL(text).password)
  } catch {
    // Nothing that stands in the README; that it is no URL is said by who reads it.
    return ''
  }
}
