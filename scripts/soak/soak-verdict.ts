/**
 * What a soak must have kept to, from what it left: counts, times beside their limits, and what each process took.
 */
import { shareOf } from '../crash/crash-stage.ts'
import { complaints, isSound, judge, summary } from '../crash/ledger-check.ts'
import type { ProcessKind } from '../crash/process-slots.ts'
import { unprovoked } from '../crash/random-kills.ts'
import type { Cores, Memory } from './process-watch.ts'
import type { CallKind, UnplannedCall } from './soak-calls.ts'
import type { SoakPlan, SoakResult } from './soak-run.ts'

/** At the 99th percentile, in ms. */
const CALL_LIMIT_MS = 100
const LEAD_LIMIT_MS = 150
const RECEIPT_LIMIT_MS = 1000
/**
 * A call is handed on so many times between processes, and each may wait for a core as long as a timer of ours does: on a machine that
 * has other work to do as well the limits are so much wider.
 */
const HANDS = 4
/** What others may take of the machine where its times are to mean anything. */
const OTHERS_SHARE = 0.15
const BURST_WITHIN_MS = 60_000
const MEMORY_LIMIT_MB: Record<ProcessKind, number> = { api: 300, daemon: 400 }
/** What a process is larger in the last fifth of the time than in the second one. */
const FLAT_FACTOR = 1.15
/** Of each of the two pools of a process; this one is the fifth. */
const POOL_SIZE = 10
const PROCESSES = 5
const SHOWN = 5

export interface SoakVerdict {
  lines: string[]
  /** What is not as it must be. */
  faults: string[]
}

export function judgeSoak(result: SoakResult, plan: SoakPlan): SoakVerdict {
  const parts = [
    calls(result, plan),
    ledger(result, plan),
    burst(result, plan),
    times(result, plan),
    resources(result, plan),
  ]
  return {
    lines: parts.flatMap((part) => part.lines),
    faults: parts.flatMap((part) => part.faults),
  }
}

function calls({ calls: made, evidence, errors, cores }: SoakResult, plan: SoakPlan): SoakVerdict {
  const isChaos = plan.killEveryMs !== undefined
  const { unplanned } = made
  const isBroken = ({ status }: UnplannedCall) => status === null || status === 503
  const excused = unplanned.filter((one) => isBusy(cores) && one.status === 503)
  const rest = unplanned.filter((one) => !excused.includes(one))
  const left = isChaos
    ? [...rest.filter((one) => !isBroken(one)), ...unprovoked(rest.filter(isBroken), evidence.kills)]
    : rest
  const statuses = [...made.statuses].sort(([a], [b]) => a - b)
  const kills = (['api', 'daemon', 'database'] as const).map((name) => `${name}=${evidence.kills.filter(({ what }) => what === name).length}`) // prettier-ignore
  const around = isChaos ? ` around a kill=${rest.length - left.length}` : ''
  const busy = isBusy(cores) ? ` 503 while others were at work=${excused.length}` : ''
  return {
    lines: [
      ...(isChaos ? [`kills: ${kills.join(' ')}`] : []),
      `answers: ${statuses.map(([status, count]) => `${status || 'broken'}=${count}`).join(' ')}`,
      `unplanned=${left.length}${around}${busy} webhooks brought back=${made.reactivated} lines of level error=${errors.length}`,
      ...left
        .slice(0, SHOWN)
        .map(({ what, status, details }) => `unplanned: ${what} was answered ${status ?? 'not at all'} ${details}`),
      ...(isChaos ? [] : errors.slice(0, SHOWN)),
    ],
    faults: [
      ...(left.length > 0 ? ['unplanned answers'] : []),
      // A database that is gone is a matter for a person.
      ...(!isChaos && errors.length > 0 ? ['lines of level error'] : []),
    ],
  }
}

/** Where nothing was killed and nobody else is at work, no answer comes later than its sender waits for it. */
function ledger({ evidence, doctor, badEnds, cores }: SoakResult, plan: SoakPlan): SoakVerdict {
  const verdict = judge(evidence)
  const isStrict = plan.killEveryMs === undefined && !isBusy(cores)
  return {
    lines: [
      `acknowledged=${verdict.acknowledged} in doubt=${verdict.inDoubt} delivered=${verdict.delivered}`,
      `${summary(verdict)}${verdict.givenUp > 0 ? ` (given up by their sender before they were answered: ${verdict.givenUp})` : ''}`,
      ...complaints(verdict),
      ...doctor.lines.slice(-SHOWN),
      ...badEnds,
    ],
    faults: [
      ...(isSound(verdict) ? [] : ['what was delivered']),
      ...(isStrict && verdict.givenUp > 0 ? ['how soon it was answered'] : []),
      ...(doctor.code === 0 ? [] : ['what the doctor finds']),
      ...(badEnds.length > 0 ? ['how processes ended'] : []),
    ],
  }
}

/** From the first event to the last one's receipt at webhooks that are well. */
function burst({ burst: { fromMs, untilMs, refused, taken }, ...result }: SoakResult, plan: SoakPlan): SoakVerdict {
  if (plan.burst === 0) return { lines: [], faults: [] }
  const last = firstReceipts(result).reduce(
    (most, { recordedAtMs, atMs }) => (recordedAtMs >= fromMs && recordedAtMs <= untilMs ? Math.max(most, atMs) : most),
    fromMs,
  )
  const afterMs = last - fromMs
  return {
    lines: [
      `burst: taken=${taken} of ${plan.burst} refused by the limit=${refused} answered within ${ms(untilMs - fromMs)}, all delivered after ${ms(afterMs)} (limit ${ms(BURST_WITHIN_MS)})`,
    ],
    faults: afterMs <= BURST_WITHIN_MS ? [] : ['the burst'],
  }
}

function times(result: SoakResult, plan: SoakPlan): SoakVerdict {
  const { usual, lateness, fromMs, burst: { fromMs: untilMs } } = result // prettier-ignore
  const p99 = (values: number[]) =>
    shareOf(
      values.toSorted((a, b) => a - b),
      0.99,
    )
  const spareMs = HANDS * p99(lateness)
  const integrators = (Object.keys(usual) as CallKind[]).filter((kind) => kind !== 'bill').flatMap((kind) => usual[kind]) // prettier-ignore
  const receipts = firstReceipts(result).flatMap(({ recordedAtMs, atMs }) => recordedAtMs >= fromMs && recordedAtMs < untilMs ? [Math.max(0, atMs - recordedAtMs)] : []) // prettier-ignore
  const rows: [string, number, number][] = [
    ['calls', p99(integrators), CALL_LIMIT_MS],
    ['leads', p99(usual.lead), LEAD_LIMIT_MS],
    ["the lab's calls", p99(usual.bill), CALL_LIMIT_MS],
    ['commit to receiver', p99(receipts), RECEIPT_LIMIT_MS],
  ]
  const shown = rows.map(([name, value, limit]) => `${name} ${ms(value)} (limit ${limit})`).join(', ')
  const isJudged = plan.killEveryMs === undefined && !isBusy(result.cores)
  const note = isJudged
    ? `timers of this machine were late by ${ms(p99(lateness))}: each limit is ${ms(spareMs)} wider`
    : `not judged: ${isBusy(result.cores) ? 'others were at work on this machine' : 'processes were killed'}`
  return {
    lines: [coresLine(result.cores), `p99: ${shown}; ${note}`],
    faults: rows.flatMap(([name, value, limit]) => (isJudged && value > limit + spareMs ? [`p99 of ${name}`] : [])),
  }
}

/** Of the machine's processor time. */
function othersShare({ api, daemon, database, bench, machine, all }: Cores): number {
  return Math.max(0, machine - api - daemon - database - bench) / all
}

/** Others have so much of the machine that its times mean little. */
function isBusy(cores: Cores): boolean {
  return othersShare(cores) > OTHERS_SHARE
}

function coresLine(cores: Cores): string {
  const own = (['api', 'daemon', 'database', 'bench'] as const).map((name) => `${name}=${cores[name].toFixed(2)}`)
  return `cores: ${own.join(' ')} others=${(othersShare(cores) * cores.all).toFixed(2)} of ${cores.all}, over ${cores.seconds.toFixed(0)} s`
}

function resources({ memory, connections, moreFiles }: SoakResult, plan: SoakPlan): SoakVerdict {
  const faults: string[] = []
  const grown = ({ earlyMb, lateMb }: Memory) => earlyMb !== undefined && lateMb! > earlyMb * FLAT_FACTOR
  const lines = (['api', 'daemon'] as const).map((kind) => {
    const own = memory.filter((one) => one.kind === kind)
    if (own.some(({ mostMb }) => mostMb > MEMORY_LIMIT_MB[kind])) faults.push(`memory of ${kind}`)
    if (own.some(grown)) faults.push(`growth of ${kind}`)
    const each = own.map(
      ({ mostMb, earlyMb, lateMb }) =>
        `${mb(mostMb)} (${earlyMb === undefined ? 'too short to say whether it is flat' : `from ${mb(earlyMb)} to ${mb(lateMb!)}`})`,
    )
    return `memory of ${kind}, at most (limit ${mb(MEMORY_LIMIT_MB[kind])}): ${each.join(', ')}`
  })
  const mostConnections = PROCESSES * 2 * POOL_SIZE
  if (connections > mostConnections) faults.push('connections')
  if (moreFiles > plan.files.more) faults.push('open files')
  return {
    lines: [
      ...lines,
      `open files at the end: ${moreFiles} more at most (limit ${plan.files.more}); connections to the database: ${connections} at most (pools of all five processes: ${mostConnections})`,
    ],
    faults,
  }
}

interface FirstReceipt {
  recordedAtMs: number
  atMs: number
}

/** Of each copy for a webhook that was live all the time. */
function firstReceipts({ evidence, recordedAtMs }: Pick<SoakResult, 'evidence' | 'recordedAtMs'>): FirstReceipt[] {
  const live = new Set(evidence.webhooks.map(({ webhook }) => webhook))
  const first = new Map<string, FirstReceipt>()
  for (const { webhook, event, atMs } of evidence.receipts) {
    const copy = `${webhook} ${event}`
    const recorded = recordedAtMs.get(event)
    if (live.has(webhook) && recorded !== undefined && !first.has(copy))
      first.set(copy, { recordedAtMs: recorded, atMs })
  }
  return [...first.values()]
}

const ms = (value: number) => `${Math.round(value)} ms`
const mb = (value: number) => `${Math.round(value)} MB`
