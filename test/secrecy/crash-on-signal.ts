/**
 * Loaded into a process beside its own code (`node --import`): on SIGUSR2 an error nobody handles, like those of the database's
 * driver, whose message and statement quote what was to be written.
 */
import { setFlagsFromString } from 'node:v8'

// Texts in a snapshot of the heap are cut at 1,024 characters otherwise.
setFlagsFromString('--heap-snapshot-string-limit=1000000')

/** Held from the start: whoever searches the process's heap finds it there. */
const value = String(process.env.CRASH_CANARY)

process.on('SIGUSR2', () => {
  const error = new Error(`insert into entries (first_name) values ('${value}') - Duplicate entry '${value}'`)
  void Promise.reject(Object.assign(error, { code: 'ER_DUP_ENTRY', sqlMessage: `Duplicate entry '${value}'` }))
})
