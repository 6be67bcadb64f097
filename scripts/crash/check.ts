/**
 * `node scripts/crash/check.ts <folder>`: judges the ledger of a run again. Exit 1 when something is lost, made up, sent
 * twice without a reason, or sent again too late after a kill.
 */
import { complaints, isSound, judge, readEvidence, summary } from './ledger-check.ts'

const [folder] = process.argv.slice(2)
if (!folder) {
  console.error('check: name the folder of a ledger')
  process.exit(2)
}
const verdict = judge(readEvidence(folder))
console.log(`${summary(verdict)} late=${verdict.late.length}`)
for (const line of complaints(verdict)) console.log(line)
process.exit(isSound(verdict) && verdict.late.length === 0 ? 0 : 1)
