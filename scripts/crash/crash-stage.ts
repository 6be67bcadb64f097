/**
 * What each run under load brings along: a database server, a receiver, an arena of processes, and the ledger that is judged
 * at the end. When the work fails its logs are kept under the data folder.
 */
import { cpSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readConfig } from '../../src/config.ts'
import { onInterrupt, StartFault } from '../processes.ts'
import { CrashArena } from './crash-arena.ts'
import { CrashServer } from './crash-server.ts'
import { startHookedReceiver, type HookedReceiver } from './hooked-receiver.ts'
import type { Evidence } from './ledger-check.ts'
import { Ledger } from './ledger.ts'

export interface CrashStage {
  server: CrashServer
  arena: CrashArena
  receiver: HookedReceiver
  ledger: Ledger
  /** For whatever else the run needs; goes at the end. */
  scratch: string
}

/** @param startServer where its database server is to be started in another way */
export async function withCrashStage<T>(
  say: (line: string) => void,
  work: (stage: CrashStage) => Promise<T>,
  startServer: () => Promise<CrashServer> = () => CrashServer.start(),
): Promise<T> {
  const scratch = mkdtempSync(join(tmpdir(), 'lis-stage-'))
  const server = await startServer()
  const ledger = new Ledger(join(scratch, 'ledger'))
  const receiver = await startHookedReceiver(server.tls, ledger)
  const arena = await CrashArena.open(await server.newDatabase(), scratch, server.tls)
  let closing: Promise<void> | undefined
  const close = () => (closing ??= closeStage({ server, arena, receiver, ledger, scratch }))
  const closed = onInterrupt(close)
  try {
    return await work({ server, arena, receiver, ledger, scratch })
  } catch (error) {
    const kept = join(readConfig().dataDir, 'crash-logs')
    cpSync(join(scratch, 'logs'), kept, { recursive: true })
    say(`the logs are kept in ${kept}`)
    throw error
  } finally {
    await close()
    closed()
  }
}

async function closeStage({ server, arena, receiver, ledger, scratch }: CrashStage): Promise<void> {
  await arena.close()
  receiver.close()
  ledger.close()
  await server.close()
  rmSync(scratch, { recursive: true, force: true })
}

/** Of the leads that were acknowledged in that time: from the answer to each of their first receipts, sorted, in ms. */
export function delaysIn({ clients, events, receipts }: Evidence, fromMs: number, untilMs: number): number[] {
  const eventOfLead = new Map(events.map(({ lead, event }) => [lead, event]))
  const ackedAtMs = new Map<string, number>()
  for (const { leadId, endedAtMs } of clients) {
    const event = leadId === null ? undefined : eventOfLead.get(leadId)
    if (event && endedAtMs >= fromMs && endedAtMs < untilMs) ackedAtMs.set(event, endedAtMs)
  }
  const first = new Map<string, number>()
  for (const { webhook, event, atMs } of receipts) {
    const acked = ackedAtMs.get(event)
    const copy = `${webhook} ${event}`
    if (acked !== undefined && !first.has(copy)) first.set(copy, Math.max(0, atMs - acked))
  }
  return [...first.values()].sort((a, b) => a - b)
}

/** @param sorted in rising order */
export function shareOf(sorted: number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0
}

/** @param ms not at all where it is below 0: the time has passed already */
export const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, Math.max(0, ms)))

/** A run's last lines and exit code. */
export function runBench(name: string, main: () => Promise<boolean>): void {
  const startedAtMs = performance.now()
  main().then(
    (isRight) => {
      const seconds = Math.round((performance.now() - startedAtMs) / 1000)
      console.log(`${name}: ${seconds} s, ${isRight ? 'all as it must be' : 'NOT as it must be'}`)
      process.exit(isRight ? 0 : 1)
    },
    (error: Error) => {
      process.stderr.write(`${name}: ${error instanceof StartFault ? error.message : (error.stack ?? error.message)}\n`)
      process.exit(1)
    },
  )
}
