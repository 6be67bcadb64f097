/**
 * `make backup-drill`: a backup under load, the loss of the database, and its restore from the backup and the binary log.
 *
 *     node scripts/crash/backup-drill.ts [--seconds 10] [--rate 40]
 *
 * An API and a daemon under load; `mariadb-dump --single-transaction` in the middle; the load goes on, then the server is
 * killed. A new one gets the dump: nothing that was acknowledged before it may be missing. Then what the binary log has from the
 * dump's position on: every table must be equal to the one that was lost, which is started once more to be compared. At last
 * the service goes on, and the ledger is judged: nothing lost, nothing twice without a reason. About twice `--seconds` and half
 * a minute. Exit 1 where something is off.
 */
import { mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { migrate } from '../../db/migrate.ts'
import { monotonicMs, processClock } from '../../src/clock.ts'
import { createLogger } from '../../src/logger.ts'
import { findDatabaseTools } from '../database-tools.ts'
import { makeSureOfDevTls } from '../dev-tls.ts'
import { startLocalDatabase, type LocalDatabase } from '../local-database.ts'
import { StartFault } from '../processes.ts'
import { BackupTools, binlogPosition, checksums, differing } from './backup-tools.ts'
import { CrashArena, isDry, until } from './crash-arena.ts'
import { CrashLoad, writeEvents } from './crash-load.ts'
import { startHookedReceiver } from './hooked-receiver.ts'
import { complaints, isSound, judge, readEvidence, summary } from './ledger-check.ts'
import { Ledger, readLedger } from './ledger.ts'

const { values } = parseArgs({
  options: { seconds: { type: 'string', default: '10' }, rate: { type: 'string', default: '40' } },
})
const seconds = Number(values.seconds)
const say = (line: string) => process.stderr.write(`backup-drill: ${line}\n`)
const SETTLE_TIMEOUT_MS = 120_000
const DATABASE = { redoLogMb: 32, bufferPoolMb: 64, binlog: true }

/** Kept for the next time, beside what `make run` keeps. */
const TOOLS = join(import.meta.dirname, '..', '..', '.data', 'mariadb-client')

const folder = mkdtempSync(join(tmpdir(), 'lis-backup-'))
/** The same folder before and after: the new server is found where the lost one was. */
const dataDir = join(folder, 'data')
const lostDir = join(folder, 'lost')
const servers = new Set<LocalDatabase>()

async function startServer(at: string): Promise<LocalDatabase> {
  const server = await startLocalDatabase({ dataDir: at, ...DATABASE })
  servers.add(server)
  void server.ended.then(() => servers.delete(server))
  return server
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

async function drill(): Promise<boolean> {
  const faults: string[] = []
  for (const at of [dataDir, lostDir]) mkdirSync(join(at, 'logs'), { recursive: true })
  const tools = new BackupTools(await findDatabaseTools(TOOLS, say))
  const before = await startServer(dataDir)
  await migrate(before.mysqlUrl, createLogger('migrate', 'warn'))
  const tls = await makeSureOfDevTls(folder, processClock.nowMs())
  const ledger = new Ledger(join(folder, 'ledger'))
  const receiver = await startHookedReceiver(tls, ledger)
  const arena = await CrashArena.open(before.mysqlUrl, folder, tls)
  try {
    let api = await arena.startApi()
    let daemon = await arena.startDaemon()
    const target = () => ({ url: api.url, pid: api.service.pid })
    const load = await CrashLoad.prepare({ arena, receiver, ledger, rate: Number(values.rate), target })
    load.start()
    await pause((seconds * 1000) / 2)

    const dumpFile = join(folder, 'lis.sql')
    const dumpFromMs = monotonicMs()
    await tools.dump(before.mysqlUrl, dumpFile)
    const dumpMs = monotonicMs() - dumpFromMs
    const position = await binlogPosition(dumpFile)
    say(`dumped in ${Math.round(dumpMs)} ms, ${position.file}:${position.at}; the load goes on`)
    await pause((seconds * 1000) / 2)

    const killedAtMs = monotonicMs()
    process.kill(before.pid, 'SIGKILL')
    await before.ended
    await load.stop()
    for (const { kill, service } of [api, daemon]) {
      kill()
      await service.ended
    }
    renameSync(join(dataDir, 'mysql'), join(lostDir, 'mysql'))

    say('restoring the dump into a new server')
    const after = await startServer(dataDir)
    const restoreFromMs = monotonicMs()
    await tools.restore(after.mysqlUrl, dumpFile)
    const restoreMs = monotonicMs() - restoreFromMs
    const acknowledged = readLedger(ledger.folder, 'client').filter(({ leadId }) => leadId !== null)
    const inBackup = acknowledged.filter(({ endedAtMs }) => endedAtMs <= dumpFromMs)
    const restored = new Set(await arena.database.knex('entries').pluck('id'))
    const lost = inBackup.filter(({ leadId }) => !restored.has(leadId!))
    const since = acknowledged.filter(({ leadId }) => !restored.has(leadId!))
    faults.push(
      ...lost.slice(0, 5).map(({ leadId }) => `lead ${leadId} was acknowledged before the dump and is not in it`),
    )
    console.log(
      `from the dump alone     restored=${restored.size} lost=${lost.length} after it=${since.length} dump=${Math.round(dumpMs)} ms restore=${Math.round(restoreMs)} ms`,
    )

    say('applying the binary log')
    const files = readdirSync(join(lostDir, 'mysql'))
      .filter((name) => /^binlog\.\d+$/.test(name))
      .sort()
    const paths = files.filter((name) => name >= position.file).map((name) => join(lostDir, 'mysql', name))
    await tools.applyBinlog(after.mysqlUrl, paths, position.at)
    const recovered = new Set(await arena.database.knex('entries').pluck('id'))
    const missing = acknowledged.filter(({ leadId }) => !recovered.has(leadId!))
    const lostServer = await startServer(lostDir)
    const different = differing(await checksums(lostServer.mysqlUrl), await checksums(after.mysqlUrl))
    await lostServer.stop()
    faults.push(...missing.slice(0, 5).map(({ leadId }) => `lead ${leadId} was acknowledged and is not restored`))
    faults.push(...different.map((table) => `table ${table} differs from the one that was lost`))
    console.log(
      `with the binary log     restored=${recovered.size} lost=${missing.length} tables=${different.tables} different=${different.length}`,
    )

    say('the service goes on')
    api = await arena.startApi()
    daemon = await arena.startDaemon()
    const point = 'loss of the database'
    ledger.append('killer', {
      what: 'database',
      how: 'fault',
      pid: before.pid,
      point,
      atMs: killedAtMs,
      untilMs: monotonicMs(),
    })
    await until('everything is delivered', () => isDry(arena.database), SETTLE_TIMEOUT_MS)
    await writeEvents(arena, ledger)
    const verdict = judge(readEvidence(ledger.folder))
    faults.push(...complaints(verdict))
    console.log(`delivered=${verdict.delivered} in doubt=${verdict.inDoubt}\n${summary(verdict)}`)
    for (const fault of faults) console.log(`MISSED ${fault}`)
    return faults.length === 0 && isSound(verdict)
  } finally {
    await arena.close()
    receiver.close()
    ledger.close()
  }
}

const startedAtMs = monotonicMs()
drill()
  .catch((error) => {
    console.error(error instanceof StartFault ? `backup-drill: ${error.message}` : error)
    return false
  })
  .then(async (isRight) => {
    for (const server of servers) await server.stop()
    rmSync(folder, { recursive: true, force: true })
    const took = Math.round((monotonicMs() - startedAtMs) / 1000)
    console.log(`backup-drill: ${took} s, ${isRight ? 'all as it must be' : 'NOT as it must be'}`)
    process.exit(isRight ? 0 : 1)
  })
