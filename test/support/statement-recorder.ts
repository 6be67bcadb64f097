/**
 * What goes over this process's connections to the database, statement by statement, values and all.
 */
import { Connection } from 'mysql2'

type Query = (
  this: Connection,
  sql: string | { sql: string; values?: unknown[] },
  values?: unknown,
  done?: unknown,
) => unknown

/** One of each kind: statements that differ in their values alone are the same. */
export class StatementRecorder {
  readonly #found = new Map<string, string>()
  readonly #owner: { query: Query }
  readonly #original: Query
  #isStopped = false

  constructor() {
    this.#owner = ownerOf(Connection.prototype)
    this.#original = this.#owner.query
    const recorder = this
    this.#owner.query = function (sql, values, done) {
      const text = typeof sql === 'string' ? sql : sql.sql
      const given = Array.isArray(values) ? values : typeof sql === 'string' ? undefined : sql.values
      if (!recorder.#isStopped) recorder.#record(given ? this.format(text, given) : text)
      return recorder.#original.call(this, sql, values, done)
    }
  }

  stop(): void {
    this.#isStopped = true
    this.#owner.query = this.#original
  }

  /** Those that read or change rows of tables. */
  get statements(): string[] {
    return [...this.#found.values()].filter(
      (sql) =>
        /^\(?(SELECT|WITH|UPDATE|DELETE|INSERT)\b/i.test(sql) &&
        /\bFROM\b|^UPDATE\b/i.test(sql) &&
        !/information_schema/i.test(sql),
    )
  }

  #record(text: string): void {
    // What batches put between their statements; no value has a line's end that is not escaped.
    for (const sql of text.split(/;\n/)) {
      const kind = sql.replace(/'(?:[^'\\]|\\.)*'|\b\d+(?:\.\d+)?\b|\bNULL\b/g, '?').replace(/\?(, ?\?)+|\(\?\)(, ?\(\?\))+/g, '?') // prettier-ignore
      if (!this.#found.has(kind)) this.#found.set(kind, sql.trim())
    }
  }
}

/** The driver's classes stand on each other; this is the one that sends. */
function ownerOf(prototype: object): { query: Query } {
  let owner = prototype
  while (!Object.hasOwn(owner, 'query')) owner = Object.getPrototypeOf(owner)
  return owner as { query: Query }
}
