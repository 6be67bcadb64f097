/**
 * Keeps the private database running: the API and the daemon live through its death, so it is simply started again.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { monotonicMs } from '../src/clock.ts'
import { startLocalDatabase, type LocalDatabase } from './local-database.ts'
import { StartFault } from './processes.ts'

export interface SupervisedDatabase {
  mysqlUrl: string
  /** Of the server that runs now. */
  pid(): number
  /** Stops the server, and a start that is under way first. */
  stop(): Promise<void>
}

/** More deaths than this in a minute are no accident. */
const DEATHS_PER_MINUTE = 5
/** What keeps it from starting may pass, such as a full disk; whoever needs it lives through that. */
const TRY_EACH_MS = 5000
const TRY_FOR_MS = 600_000

/**
 * @param onGiveUp told once when the database can't be kept running
 * @throws StartFault when it does not start at all
 */
export async function superviseLocalDatabase(
  dataDir: string,
  say: (line: string) => void,
  onGiveUp: (fault: Error) => void,
): Promise<SupervisedDatabase> {
  // The caller holds the run lock of this folder, so a server that runs on it has lost its starter.
  const start = () => startLocalDatabase({ dataDir, endSurvivor: true, onProgress: say })
  say('starting the private database …')
  let current: LocalDatabase = await start()
  let restarting: Promise<void> | undefined
  let stopping = false
  const deathsAt: number[] = []

  const watch = (): void => {
    void current.ended.then((how) => {
      if (stopping) return
      const now = monotonicMs()
      deathsAt.push(now)
      if (deathsAt.filter((at) => at > now - 60_000).length > DEATHS_PER_MINUTE) {
        return onGiveUp(new StartFault(`the private database keeps dying (${how}): see mysql.log in ${dataDir}/logs`))
      }
      say(`the private database ended (${how}): starting it again …`)
      restarting = restart(now).catch(onGiveUp)
    })
  }
  const restart = async (sinceMs: number): Promise<void> => {
    for (;;) {
      try {
        current = await start()
        return watch()
      } catch (error) {
        if (stopping) return
        if (monotonicMs() - sinceMs > TRY_FOR_MS) throw error
        say(`${(error as Error).message.split('\n')[0]}; trying again …`)
      }
      for (let waitedMs = 0; waitedMs < TRY_EACH_MS && !stopping; waitedMs += 100) await sleep(100)
      if (stopping) return
    }
  }
  watch()
  return {
    mysqlUrl: current.mysqlUrl,
    pid: () => current.pid,
    stop: async () => {
      stopping = true
      await restarting
      await current.stop()
    },
  }
}
