import { COMMIT } from '../../db/batch.ts'
import type { Database } from '../../db/connection.ts'
import { readOwned, takeStatements } from '../../src/deliveries/lanes-repository.ts'

/** Takes a lane as a daemon does. @returns whether it is this owner's now */
export async function takeLane({ batch }: Database, webhookId: string, token: string): Promise<boolean> {
  const read = await batch.transaction((send) => send([...takeStatements([webhookId], token), COMMIT]))
  return readOwned(read[1]!).length === 1
}
