import { createServer, type AddressInfo, type Socket } from 'node:net'
import { expect, test } from 'vitest'
import { connectDatabase } from '../db/connection.ts'
import { monotonicMs } from '../src/clock.ts'
import { Readiness } from '../src/readiness.ts'
import { createEmptyDatabase, openTestDatabase } from './support/database.ts'

test('a process is ready with a database that answers and has the current schema, until it drains', async () => {
  const { database, close } = await openTestDatabase()
  const readiness = new Readiness(database.knex)
  expect(readiness.fault).toBe('the service is starting')
  await readiness.start()
  expect([readiness.fault, readiness.isDraining]).toEqual([undefined, false])
  readiness.drain()
  expect([readiness.fault, readiness.isDraining]).toEqual(['the service is shutting down', true])
  await close()
})

test('a process is not ready while the schema is not current', async () => {
  const empty = await createEmptyDatabase()
  const database = connectDatabase(empty.mysqlUrl)
  const readiness = new Readiness(database.knex)
  await readiness.start()
  expect(readiness.fault).toBe('the database schema is not current: run make migrate')
  readiness.drain()
  await database.close()
  await empty.drop()
})

test('a process knows within a second that its database says nothing', async () => {
  const sockets = new Set<Socket>()
  const silent = createServer((socket) => sockets.add(socket))
  const port = await new Promise<number>((resolve) => {
    silent.listen(0, '127.0.0.1', () => resolve((silent.address() as AddressInfo).port))
  })
  const database = connectDatabase(`mysql://root@127.0.0.1:${port}/lis`)
  const readiness = new Readiness(database.knex)
  const startedAt = monotonicMs()
  await readiness.start()
  expect(monotonicMs() - startedAt).toBeLessThan(1500)
  expect(readiness.fault).toBe('the database does not answer')
  readiness.drain()
  for (const socket of sockets) socket.destroy()
  silent.close()
  await database.close()
})

test('what the database has answered somebody else in the last 550 ms is not asked of it again', async () => {
  const { database, close } = await openTestDatabase()
  let agoMs = 0
  const readiness = new Readiness(database.knex, () => agoMs)
  // Of the start itself, and of the schema, nobody else knows.
  expect(readiness.fault).toBe('the service is starting')
  await readiness.start()
  expect(readiness.fault).toBeUndefined()
  await close()
  await readiness.start()
  expect(readiness.fault).toBeUndefined()
  agoMs = 551
  await readiness.start()
  expect(readiness.fault).toBe('the database does not answer')
  agoMs = 0
  await readiness.start()
  expect(readiness.fault).toBe('the database does not answer')
  readiness.drain()
})
