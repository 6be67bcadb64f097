/**
 * `make bench-deletions`: webhooks for messages are deleted while 500 messages wait for each: by their integrator, by the operator
 * and, after a day of failures, by themselves. Two daemons are at work, and half of the endpoints fail.
 *
 *     node scripts/crash/bench-deletions.ts [--rounds 20] [--copies 500]
 *
 * No request to a deleted webhook starts later than a second after the answer, and no message from after it goes there. Each
 * message is sent once: by whoever has answered 2xx, and else by the gateway. 200 rounds for the full form; each takes some
 * seconds, four of them at a time. Exit 1 when one is off.
 */
import { parseArgs } from 'node:util'
import { wholeNumber } from '../whole-number.ts'
import { runBench, withCrashStage } from './crash-stage.ts'
import { addTallies, deleteWhileQueued, isTallyRight, newOperatorKey, NO_DELETIONS } from './deletion-rounds.ts'
import { startCountingGateway } from './message-gateway.ts'

const TOGETHER = 4
const say = (line: string) => process.stderr.write(`bench-deletions: ${line}\n`)

runBench('bench-deletions', async () => {
  const { values } = parseArgs({
    options: { rounds: { type: 'string', default: '20' }, copies: { type: 'string', default: '500' } },
  })
  const rounds = wholeNumber('rounds', values.rounds, 1, 10_000)
  const copies = wholeNumber('copies', values.copies, 50, 10_000)
  return withCrashStage(say, async ({ arena, receiver }) => {
    const gateway = await startCountingGateway()
    try {
      const api = await arena.startApi()
      for (let n = 0; n < 2; n++) await arena.startDaemon({ MESSAGE_GATEWAY_URL: gateway.url })
      const stage = { arena, receiver, gateway, api, operatorKey: await newOperatorKey(arena) }
      let tally = NO_DELETIONS
      for (let from = 0; from < rounds; from += TOGETHER) {
        const part = Array.from({ length: Math.min(TOGETHER, rounds - from) }, (_, n) => from + n)
        const tallies = await Promise.all(part.map((n) => deleteWhileQueued(stage, n, copies)))
        tally = tallies.reduce(addTallies, tally)
        say(`${tally.deletions} of ${rounds}`)
      }
      const { deletions, queued, taken, normal, late, lastMs, astray, both, neither, twice } = tally
      console.log(
        `deletions=${deletions} queued=${queued} taken=${taken} normal way=${normal} ` +
          `started late=${late} (last after ${Math.round(lastMs)} ms) new ones at it=${astray} both ways=${both} lost=${neither} twice=${twice}`,
      )
      return isTallyRight(tally)
    } finally {
      gateway.close()
    }
  })
})
