/**
 * Keeps the private database running: the API and the daemon live through its death, so it is simply started again.
 */
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
      restarting = start().then((next) => {
        current = next
        watch()
      })
      restarting.catch(onGiveUp)
    })
  }
  watch()
  return {
    mysqlUrl: current.mysqlUrl,
    pid: () => current.pid,
    stop: async () => {
      stopping = true
      await restarting?.catch(() => {})
      await current.stop()
    },
  }
}
