/**
 * Loaded into a process beside its own code (`node --import`): on SIGUSR2 an error nobody handles, like those of the database's
 * driver, whose message and statement quote what was to be written.
 */
process.on('SIGUSR2', () => {
  const value = process.env.CRASH_CANARY
  const error = new Error(`insert into entries (first_name) values ('${value}') - Duplicate entry '${value}'`)
  void Promise.reject(Object.assign(error, { code: 'ER_DUP_ENTRY', sqlMessage: `Duplicate entry '${value}'` }))
})
