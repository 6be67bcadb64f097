/**
 * The limit that the API is measured against: a bare node:http server, nothing but its routes.
 *
 * `POST /client/crm/lead/create` writes the rows that the service writes for a lead, budget included, in one durable transaction
 * and one round trip: no token, no validation, no look at anything. With an `endpoint` it then sends a POST of an event's size.
 * `GET /client/crm/tests` serialises a list from memory.
 *
 * Told over IPC: `{tenants, mysqlUrl, endpoint?, caFile?, list?}`; tells `{port}`.
 */
import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createPool, type Pool } from 'mysql2'
import { Agent, request } from 'undici'
import { driverOptions, SESSION_STATEMENTS } from '../../db/connection.ts'
import { newId } from '../../src/ids.ts'
import type { Tenant } from './tenants.ts'

export interface BareOrder {
  tenants: Tenant[]
  mysqlUrl: string
  endpoint?: string
  caFile?: string
  list?: unknown
}

/** As many as the service has. */
const CONNECTIONS = 10
const DELIVERIES_AT_ONCE = 128

let order: BareOrder
let pool: Pool
let dispatcher: Agent
const accounts = new Map<string, Tenant>()

const BUDGET = 'INSERT INTO crm_budgets (account_id, calls) VALUES (?, ?) ON DUPLICATE KEY UPDATE calls = VALUES(calls)'
const ROWS = [
  'START TRANSACTION',
  BUDGET,
  'INSERT INTO entry_day_guards (account_id, day, kind, value_hash, entry_id) VALUES ?',
  'INSERT INTO entries (id, account_id, lab_id, phase, integrator_id, first_name, last_name, contact, email, details, created_at, updated_at) VALUES (?)',
  'INSERT INTO events (id, account_id, lab_id, type, recorded_at, subject_id) VALUES (?)',
  'INSERT INTO event_bodies (event_id, body) VALUES (?)',
  'INSERT INTO unrouted_events (event_id) VALUES (?)',
  'INSERT INTO staff_notifications (id, account_id, lab_id, kind, entry_id, created_at) VALUES (?)',
  'UPDATE telecaller_turns SET last_telecaller_id = ? WHERE account_id = ?',
  'COMMIT',
].join(';')

async function createLead(req: IncomingMessage): Promise<object> {
  const chunks: Buffer[] = []
  for await (const chunk of req) chunks.push(chunk as Buffer)
  const body = JSON.parse(Buffer.concat(chunks).toString('utf8'))
  const { accountId, labId } = accounts.get(req.headers.authorization!)!
  const now = new Date()
  const id = newId(now.getTime())
  const eventId = newId(now.getTime())
  const event = Buffer.from(JSON.stringify({ id: eventId, type: 'lead.created', timestamp: now, labID: labId, integratorID: body.integratorID, data: { lead: { ...body, leadId: id } } })) // prettier-ignore
  const values = [
    accountId,
    Buffer.alloc(480),
    ['contact', 'email'].map((kind) => [accountId, '2026-11-21', kind, randomBytes(32), id]),
    [id, accountId, labId, 'lead', body.integratorID, body.first_name, body.last_name, body.contact, body.email, '{}', now, now],
    [eventId, accountId, labId, 'lead.created', now, id],
    [eventId, event],
    [eventId],
    [newId(now.getTime()), accountId, labId, 'NEW_LEAD', id, now],
    id,
    accountId,
  ] // prettier-ignore
  await new Promise<void>((resolve, reject) => pool.query(ROWS, values, (error) => (error ? reject(error) : resolve())))
  if (order.endpoint) void deliver(order.endpoint, eventId, event)
  return { success: true, leadId: id, phase: 'lead', message: 'Lead created' }
}

async function deliver(endpoint: string, eventId: string, body: Buffer): Promise<void> {
  const headers = { 'content-type': 'application/json', 'webhook-id': eventId }
  const answer = await request(endpoint, { method: 'POST', body, headers, dispatcher })
  await answer.body.dump()
}

async function answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
  const body = req.method === 'POST' ? await createLead(req) : order.list
  res.writeHead(200, { 'content-type': 'application/json; charset=utf-8' }).end(JSON.stringify(body))
}

process.on('message', (message: BareOrder) => {
  order = message
  for (const tenant of order.tenants) accounts.set(`Bearer ${tenant.token}`, tenant)
  pool = createPool({ ...driverOptions(order.mysqlUrl), multipleStatements: true, connectionLimit: CONNECTIONS })
  pool.on('connection', (connection) => connection.query(SESSION_STATEMENTS.join(';')))
  if (order.caFile)
    dispatcher = new Agent({
      connections: DELIVERIES_AT_ONCE,
      connect: { ca: readFileSync(order.caFile), allowH2: false },
    })
  const server = createServer(
    (req, res) => void answer(req, res).catch((error: Error) => res.writeHead(500).end(error.stack)),
  )
  server.listen(0, '127.0.0.1', () => process.send!({ port: (server.address() as AddressInfo).port }))
})
process.on('disconnect', () => process.exit(0))
