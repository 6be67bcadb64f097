/**
 * Agenda's jobs in MongoDB. The connection is ours: Agenda's own would hang its start while the server is away.
 */
import { MongoBackend } from '@agendajs/mongo-backend'
import { InMemoryNotificationChannel, type AgendaBackend } from 'agenda'
import { MongoClient, type Db } from 'mongodb'
import { errorFields, type Logger } from '../src/logger.ts'

const COLLECTION = 'agendaJobs'
/** A server that does not answer is given up quickly: the embedded store goes on meanwhile. */
const ANSWER_WITHIN_MS = 1000
const SOCKET_TIMEOUT_MS = 3000
const CONNECT_AGAIN_MS = 2000

export interface MongoJobStore {
  backend: AgendaBackend
  /** Frees the jobs that a process which is gone, or is about to go, has locked. */
  unlockJobsOf(processName: string): Promise<void>
  close(): Promise<void>
}

/**
 * Tries until it succeeds.
 * @param givenUp asked before each try
 * @returns undefined when it was given up
 */
export async function connectMongoJobStore(
  url: string,
  log: Logger,
  givenUp: () => boolean,
): Promise<MongoJobStore | undefined> {
  for (let tries = 1; !givenUp(); tries++) {
    const client = new MongoClient(url, {
      serverSelectionTimeoutMS: ANSWER_WITHIN_MS,
      connectTimeoutMS: ANSWER_WITHIN_MS,
      socketTimeoutMS: SOCKET_TIMEOUT_MS,
      retryWrites: false,
    })
    try {
      await client.connect()
      return await openStore(client, client.db())
    } catch (error) {
      await client.close().catch(() => {})
      if (tries === 1) log.warn('job_store.unreachable', { ...errorFields(error), state: 'the embedded one goes on' })
      await new Promise((resolve) => setTimeout(resolve, CONNECT_AGAIN_MS))
    }
  }
  return undefined
}

async function openStore(client: MongoClient, db: Db): Promise<MongoJobStore> {
  const collection = db.collection(COLLECTION)
  // Agenda's unique save is an upsert without an index: two at once would both insert.
  await collection.createIndex({ name: 1, 'data.webhook': 1 }, { unique: true, name: 'one_job_a_lane' })
  const mongo = new MongoBackend({ mongo: db, collection: COLLECTION })
  await mongo.connect()
  const channel = new InMemoryNotificationChannel()
  await channel.connect()
  return {
    backend: {
      name: 'mongodb',
      repository: mongo.repository,
      // Jobs that this process saves wake it at once; others' are found by the scan.
      notificationChannel: channel,
      ownsConnection: false,
      connect: async () => {},
      disconnect: () => channel.disconnect(),
    },
    async unlockJobsOf(processName) {
      await collection.updateMany(
        { lastModifiedBy: processName, lockedAt: { $ne: null } },
        { $set: { lockedAt: null } },
      )
    },
    close: () => client.close(),
  }
}
