/**
 * Asks the probes of processes all the time, and tells how they were answered during and behind a fault.
 */
import { Agent, get } from 'node:http'
import { monotonicMs } from '../../src/clock.ts'
import { pause, shareOf } from './crash-stage.ts'

const EACH_MS = 50
/** An answer that takes as long is none. */
const TIMEOUT_MS = 5000

const PATHS = ['/livez', '/readyz'] as const
const SHORT_MS = 2000
const sorted = (probes: Probe[]) => probes.map(({ tookMs }) => tookMs).sort((a, b) => a - b)

interface Probe {
  target: string
  path: (typeof PATHS)[number]
  atMs: number
  tookMs: number
  /** 0: none came. */
  status: number
}

export interface ProbeVerdict {
  target: string
  /** Answers of /livez other than 200. */
  notAlive: number
  /** From the fault's beginning to the first 503 of /readyz, in ms; undefined: there was none. */
  downAfterMs: number | undefined
  /** From its end until /readyz is 200 and stays so. */
  upAfterMs: number | undefined
  /** During the fault: the median of the answers of the slower of the two paths. */
  p50Ms: number
  /** Of all answers. */
  p99Ms: number
}

export class ProbeWatch {
  readonly #probes: Probe[] = []
  readonly #targets: string[]
  readonly #agent = new Agent({ keepAlive: true })
  #running = true
  readonly #loops: Promise<void>[]

  /** @param targets base URLs by name */
  constructor(targets: Record<string, string>) {
    this.#targets = Object.keys(targets)
    this.#loops = Object.entries(targets).flatMap(([target, url]) => PATHS.map((path) => this.#ask(target, url, path)))
  }

  async stop(): Promise<void> {
    this.#running = false
    await Promise.all(this.#loops)
    this.#agent.destroy()
  }

  /** Resolves when all are ready that are asked from then on, or when that takes too long. */
  async ready(sinceMs: number, timeoutMs: number): Promise<void> {
    const isReady = (target: string) => {
      const last = this.#probes.findLast((one) => one.target === target && one.path === '/readyz')
      return last !== undefined && last.atMs >= sinceMs && last.status === 200
    }
    const endMs = monotonicMs() + timeoutMs
    while (!this.#targets.every(isReady) && monotonicMs() < endMs) await pause(EACH_MS)
  }

  /** @param untilMs the fault's end; @param nextAtMs the next one's beginning */
  judge(target: string, atMs: number, untilMs: number, nextAtMs: number): ProbeVerdict {
    const own = this.#probes.filter((one) => one.target === target && one.atMs >= atMs && one.atMs < nextAtMs)
    const ready = own.filter(({ path }) => path === '/readyz')
    const down = ready.find(({ status }) => status !== 200)
    const lastDown = ready.findLast(({ status }) => status !== 200)
    const up = ready.find((one) => one.status === 200 && one.atMs > (lastDown?.atMs ?? 0) && one.atMs >= untilMs)
    // A short one is over before it has been asked about often enough.
    const during = own.filter((one) => one.atMs < Math.max(untilMs, atMs + SHORT_MS))
    return {
      target,
      notAlive: own.filter(({ path, status }) => path === '/livez' && status !== 200).length,
      downAfterMs: down && down.atMs + down.tookMs - atMs,
      upAfterMs: up && up.atMs + up.tookMs - untilMs,
      p50Ms: Math.max(...PATHS.map((path) => shareOf(sorted(during.filter((one) => one.path === path)), 0.5))),
      p99Ms: shareOf(sorted(own), 0.99),
    }
  }

  async #ask(target: string, url: string, path: Probe['path']): Promise<void> {
    while (this.#running) {
      const atMs = monotonicMs()
      const status = await this.#statusOf(`${url}${path}`)
      this.#probes.push({ target, path, atMs, tookMs: monotonicMs() - atMs, status })
      await pause(EACH_MS)
    }
  }

  #statusOf(url: string): Promise<number> {
    return new Promise((resolve) => {
      const request = get(url, { agent: this.#agent, timeout: TIMEOUT_MS }, (response) => {
        response.resume().on('end', () => resolve(response.statusCode!))
        response.on('error', () => resolve(0))
      })
      request.on('timeout', () => request.destroy())
      request.on('error', () => resolve(0))
    })
  }
}
