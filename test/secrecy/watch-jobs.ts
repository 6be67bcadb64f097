/**
 * Loaded into a daemon beside its own code (`node --import`): writes each job as its embedded store keeps it to the file of
 * `JOBS_FILE`, a line each. A job that is done is removed, so that nothing would be left to look at later.
 */
import { appendFileSync } from 'node:fs'

const file = process.env.JOBS_FILE
if (file && process.argv[1]?.endsWith('daemon/main.ts')) {
  const { AgendaMemoryStore } = await import('../../daemon/agenda-memory-store.ts')
  const { saveJob, saveJobState } = AgendaMemoryStore.prototype
  AgendaMemoryStore.prototype.saveJob = async function (job) {
    const stored = await saveJob.call(this, job)
    appendFileSync(file, `${JSON.stringify(stored)}\n`)
    return stored as typeof job
  }
  AgendaMemoryStore.prototype.saveJobState = async function (job) {
    await saveJobState.call(this, job)
    appendFileSync(file, `${JSON.stringify((await this.getJobById(String(job._id))) ?? job)}\n`)
  }
}
