/**
 * Looks names up with c-ares, which has timeouts of its own: the system's resolver blocks every look-up of the process behind a
 * dead server. A look-up ends with the attempt that it is made for, and not before: the name, the connection and the answer
 * have one deadline.
 */
import { NODATA, Resolver, TIMEOUT } from 'node:dns/promises'

/**
 * c-ares takes no answer to an earlier try, and once a server has answered it gives it five times as long as it usually took, 250 ms at
 * least, and with each further try twice as much. So many tries last longer than an attempt, and the last ones long enough for a slow
 * answer.
 */
const OF_ALL = { timeout: 1000, tries: 7 }
/**
 * What is slow by itself, each time that it is asked for, is asked for once more with c-ares' longest first try, by a resolver that knows
 * of no other answers.
 */
const OF_ONE = { timeout: 5000, tries: 2 }
const SLOW_FROM_MS = 1000
/** Of the 10 s of an attempt. What is resolved later would hardly be connected to. */
const LOOKUP_MS = 9500
/**
 * Once addresses of one family are known, how long the answer about the other has: there are name servers that answer nothing
 * about AAAA.
 */
const OTHER_FAMILY_MS = 1500

/**
 * @returns all addresses of a name, at least one
 * @throws with c-ares' code
 */
export type NameLookup = (hostname: string) => Promise<string[]>

/** @param servers `address:port` of name servers; undefined: the system's */
export function createNameLookup(servers?: string[]): NameLookup {
  const resolverOf = (options: typeof OF_ALL) => {
    const resolver = new Resolver(options)
    if (servers) resolver.setServers(servers)
    return resolver
  }
  const common = resolverOf(OF_ALL)
  return (hostname) => {
    let own: Resolver | undefined
    const timers: NodeJS.Timeout[] = []
    return new Promise<string[]>((resolve, reject) => {
      resolveAll(common, hostname).then(resolve, reject)
      timers.push(setTimeout(() => reject(noAnswer()), LOOKUP_MS))
      timers.push(
        setTimeout(() => {
          own = resolverOf(OF_ONE)
          resolveAll(own, hostname).then(resolve, reject)
        }, SLOW_FROM_MS),
      )
    }).finally(() => {
      for (const timer of timers) clearTimeout(timer)
      own?.cancel()
    })
  }
}

/** An answer about one of the families that does not come is none; whatever has come counts. */
function resolveAll(resolver: Resolver, hostname: string): Promise<string[]> {
  return new Promise((resolve, reject) => {
    const answers: string[][] = [[], []]
    const faults: Error[] = []
    let open = answers.length
    let timer: NodeJS.Timeout | undefined
    const end = () => {
      clearTimeout(timer)
      const addresses = answers.flat()
      if (addresses.length > 0) return resolve(addresses)
      // An alias that leads to no address is an answer, of nothing.
      reject(faults[0] ?? faults[1] ?? Object.assign(new Error('the name has no address'), { code: NODATA }))
    }
    const came = () => {
      open -= 1
      if (open === 0) end()
      else if (answers.flat().length > 0) timer = setTimeout(end, OTHER_FAMILY_MS)
    }
    for (const [at, asked] of [resolver.resolve4(hostname), resolver.resolve6(hostname)].entries()) {
      asked.then(
        (addresses) => {
          answers[at] = addresses
          came()
        },
        (error) => {
          faults[at] = error
          came()
        },
      )
    }
  })
}

const noAnswer = () => Object.assign(new Error('no name server has answered'), { code: TIMEOUT })
