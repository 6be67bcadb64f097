/**
 * What a daemon notes for traces never stands in the way of its deliveries.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { DeliveryTraces } from '../../daemon/delivery-traces.ts'
import { createLogger } from '../../src/logger.ts'
import { withTraceParent } from '../../src/trace-context.ts'
import type { EndedSpan } from '../../src/spans.ts'
import { openTestDatabase, type TestDatabase } from '../support/database.ts'
import { DeliveryWorld } from '../support/delivery-world.ts'

const TRACE_PARENT = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'

let db: TestDatabase
let world: DeliveryWorld

beforeAll(async () => {
  db = await openTestDatabase()
  world = await new DeliveryWorld(db.database).open()
})
afterAll(async () => {
  await world.close()
  await db.close()
})

function tracesOf(knex = db.database.knex) {
  const spans: EndedSpan[] = []
  const lines: { event: string; rows: unknown }[] = []
  const tracing = {
    startRequest: () => ({ traceParent: undefined, end: () => {} }),
    record: (span: EndedSpan) => void spans.push(span),
    stop: async () => {},
  }
  const log = createLogger('daemon', 'silent')
  log.warn = (event, fields) => void lines.push({ event, rows: fields?.events })
  return { traces: new DeliveryTraces({ knex, tracing, log }), spans, lines }
}

const at = { startedAt: new Date('2026-11-20T10:15:00Z'), durationMs: 3 }

test('only what belongs to a traced event becomes a span, under the context that the event was recorded in', async () => {
  const traced = await withTraceParent(TRACE_PARENT, () => world.event())
  const untraced = await world.event()
  const { traces, spans } = tracesOf()
  traces.routed([traced.id, untraced.id], at)
  await traces.stop()
  expect(spans).toEqual([
    {
      ...at,
      name: 'event.fan_out',
      kind: 'internal',
      failed: false,
      traceParent: TRACE_PARENT,
      attributes: { 'lis.event_id': traced.id, 'lis.event_type': 'lead.created' },
    },
  ])
})

test('more than can be looked up in time is dropped, and said', async () => {
  const traced = await withTraceParent(TRACE_PARENT, () => world.event())
  const { traces, spans, lines } = tracesOf()
  traces.routed(new Array(6000).fill(traced.id), at)
  await traces.stop()
  expect(spans).toHaveLength(5000)
  expect(lines).toEqual([{ event: 'traces.dropped', rows: 1000 }])
})

test('a database that fails costs the spans, and nothing is thrown', async () => {
  const own = await openTestDatabase()
  await own.database.knex.raw('RENAME TABLE events TO events_away')
  const { traces, spans, lines } = tracesOf(own.database.knex)
  traces.routed(['01krx3v7w1m9h3c2q8z5n6t4p0'], at)
  await traces.stop()
  await own.database.knex.raw('RENAME TABLE events_away TO events')
  await own.close()
  expect(spans).toEqual([])
  expect(lines).toEqual([{ event: 'traces.dropped', rows: 1 }])
})
