/**
 * The lanes of a daemon without its scheduler: real client, recorder and rows, for the jobs that run them.
 */
import { Lanes } from '../../daemon/lanes.ts'
import { Recorder } from '../../daemon/recorder.ts'
import { createWebhookClient } from '../../daemon/webhook-client.ts'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { newId } from '../../src/ids.ts'
import { createLogger } from '../../src/logger.ts'
import { createAddressPolicy } from '../../src/webhooks/endpoint-address.ts'
import { openTestDatabase, type TestDatabase } from './database.ts'
import { DeliveryWorld } from './delivery-world.ts'
import { createTestTls } from './tls.ts'

export interface LaneJobs {
  db: TestDatabase
  world: DeliveryWorld
  receiver: HttpsReceiver
  lanes: Lanes
  close(): Promise<void>
}

/** With a database and a receiver of their own. @param answer as the receiver's */
export async function openLaneJobs(answer?: Parameters<typeof startHttpsReceiver>[1]): Promise<LaneJobs> {
  const tls = await createTestTls()
  const db = await openTestDatabase()
  const world = await new DeliveryWorld(db.database).open()
  const receiver = await startHttpsReceiver(tls, answer)
  const { lanes, stop } = startLanes(world, tls.caFile)
  const close = async () => {
    await stop()
    await world.close()
    await receiver.close()
    await db.close()
    tls.remove()
  }
  return { db, world, receiver, lanes, close }
}

function startLanes(world: DeliveryWorld, caFile: string): { lanes: Lanes; stop(): Promise<void> } {
  const { database, clock, keys } = world
  const own = newId(0)
  const token = () => own
  const log = createLogger('daemon', 'silent')
  const client = createWebhookClient({ policy: createAddressPolicy({ allow: ['127.0.0.0/8'] }), caFiles: [caFile] })
  const recorder = new Recorder({
    ...{ batch: database.batch, token, clock, log },
    rules: { ...world.config(), random: () => 0 },
    onRecorded: (results, recorded) => lanes.recorded(results, recorded),
    onUnrecordable: (result) => lanes.unrecordable(result),
  })
  const record = recorder.push.bind(recorder)
  const lanes: Lanes = new Lanes({ database, clock, keys, client, log, token, isSure: () => true, maxInFlight: 10, afterDeath: () => false, record, messagesDue: () => {} }) // prettier-ignore
  lanes.start()
  return {
    lanes,
    async stop() {
      await lanes.stop()
      await recorder.drain()
      await client.close()
    },
  }
}
