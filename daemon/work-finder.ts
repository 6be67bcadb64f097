/**
 * What there is to do, also where thousands of lanes that fail have been due for longer than any other.
 */
import type { Knex } from 'knex'
import { monotonicMs } from '../src/clock.ts'
import { findWork, listDueHealthyLanes, type Work } from '../src/deliveries/work-repository.ts'

/** It walks over all that fail: some milliseconds for thousands. */
const BEYOND_EACH_MS = 500

export class WorkFinder {
  readonly #knex: Knex
  #beyondAtMs = -Infinity

  constructor(knex: Knex) {
    this.#knex = knex
  }

  /** @param maxLanes of each kind */
  async find(now: Date, maxLanes: number): Promise<Work> {
    const work = await findWork(this.#knex, now, maxLanes)
    const isFull = work.dueLanes.length >= maxLanes && work.dueLanes.every(({ failing }) => failing)
    if (!isFull || monotonicMs() - this.#beyondAtMs < BEYOND_EACH_MS) return work
    this.#beyondAtMs = monotonicMs()
    return { ...work, dueLanes: [...work.dueLanes, ...(await listDueHealthyLanes(this.#knex, now, maxLanes))] }
  }
}
