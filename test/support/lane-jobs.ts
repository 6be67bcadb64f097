/**
 * The lanes of a daemon without its scheduler: real client, recorder and rows, for the jobs that run them.
 */
import { Lanes } from '../../daemon/lanes.ts'
import { Recorder } from '../../daemon/recorder.ts'
import { createWebhookClient } from '../../daemon/webhook-client.ts'
import { newId } from '../../src/ids.ts'
import { createLogger } from '../../src/logger.ts'
import { createAddressPolicy } from '../../src/webhooks/endpoint-address.ts'
import type { DeliveryWorld } from './delivery-world.ts'

export interface RunningLanes {
  lanes: Lanes
  stop(): Promise<void>
}

export function startLanes(world: DeliveryWorld, caFile: string): RunningLanes {
  const { database, clock, keys } = world
  const own = newId(0)
  const token = () => own
  const log = createLogger('daemon', 'silent')
  const client = createWebhookClient({ policy: createAddressPolicy(['127.0.0.0/8']), caFiles: [caFile] })
  const recorder = new Recorder({
    ...{ batch: database.batch, token, clock, log },
    rules: { ...world.config(), random: () => 0 },
    onRecorded: (results, recorded) => lanes.recorded(results, recorded),
    onUnrecordable: (result) => lanes.unrecordable(result),
  })
  const record = recorder.push.bind(recorder)
  const lanes: Lanes = new Lanes({ database, clock, keys, client, log, token, maxInFlight: 10, record, messagesDue: () => {} }) // prettier-ignore
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
