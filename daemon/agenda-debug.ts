/**
 * To be loaded before everything that loads `debug`. Agenda asks for a logger of it at each step of each job, and gets a new one each
 * time: some 20 KB a job, a quarter of what a daemon with many quiet webhooks leaves to be collected, for lines that nobody reads.
 */
import { createRequire } from 'node:module'

/** What `debug` makes. Source: https://github.com/debug-js/debug, `src/common.js`. */
interface DebugLogger {
  extend(name: string, delimiter?: string): DebugLogger
}

// Each logger asks the system whether stderr is a terminal, unless the environment says whether there are colours.
process.env.DEBUG_COLORS ??= 'no'

/** The one that Agenda has. */
const debug: { init(logger: DebugLogger): void } = createRequire(createRequire(import.meta.url).resolve('agenda'))(
  'debug',
)

/** The names are words of Agenda's source. */
const MOST_KNOWN = 100

function keepExtensions(logger: DebugLogger): void {
  const { extend } = logger
  const known = new Map<string, DebugLogger>()
  logger.extend = (name, delimiter = ':') => {
    const key = delimiter + name
    let extension = known.get(key)
    if (!extension) {
      extension = extend.call(logger, name, delimiter)
      if (known.size < MOST_KNOWN) known.set(key, extension)
    }
    return extension
  }
}

const { init } = debug
debug.init = (logger) => {
  init(logger)
  keepExtensions(logger)
}
