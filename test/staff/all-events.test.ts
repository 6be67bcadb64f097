/**
 * Each of the 17 events from a real action of an integrator or of staff, over a real daemon, at a real receiver.
 */
import { Webhook } from 'standardwebhooks'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startHttpsReceiver, type HttpsReceiver } from '../../scripts/https-receiver.ts'
import { findAccount } from '../../src/accounts/accounts-repository.ts'
import { findLab } from '../../src/catalogue/labs-repository.ts'
import { EVENT_TYPES } from '../../src/events/event-types.ts'
import { client, startTestApp, type TestApp } from '../support/app.ts'
import { DeliveryWorld, type TestWebhook } from '../support/delivery-world.ts'
import { createTestTls } from '../support/tls.ts'
import { done, openStaffWorld, PDF, type StaffWorld } from './staff-world.ts'

let app: TestApp
let tls: Awaited<ReturnType<typeof createTestTls>>
let deliveries: DeliveryWorld
let receiver: HttpsReceiver
let webhook: TestWebhook
let world: StaffWorld

beforeAll(async () => {
  tls = await createTestTls()
  app = await startTestApp()
  receiver = await startHttpsReceiver(tls)
  deliveries = await new DeliveryWorld(app.database).open()
  webhook = await deliveries.webhook({ endpoint: receiver.url, events: [...EVENT_TYPES] })
  await deliveries.daemon(tls.caFile)
  const account = (await findAccount(app.database.knex, deliveries.accountId))!
  const lab = (await findLab(app.database.knex, account.id, deliveries.labId))!
  world = await openStaffWorld(app, { account, lab })
  await app.database.knex('operator_lists').insert({
    account_id: account.id,
    list: 'lead_source',
    position: 0,
    value: 'Website',
  })
})
afterAll(async () => {
  await deliveries.close()
  await receiver.close()
  await app.close()
  tls.remove()
})

/** Everything that can happen to a patient, and a bill that is deleted and a booking that is cancelled besides. */
async function liveThroughAll(): Promise<void> {
  const { phlebotomistId, otherPhlebotomistId } = world
  const leadId = await world.createEntry({ integratorID: 'CRM-1' })
  done(await world.post(`/entries/${leadId}/send-quotation`))
  const when = { bookingType: 'Home Collection', scheduledAt: '2026-11-22T07:30:00' }
  done(await world.post(`/entries/${leadId}/convert`, when))
  done(await world.post(`/bookings/${leadId}/send`))
  done(await world.post(`/bookings/${leadId}/reschedule`, { scheduledAt: '2026-11-23T07:30:00' }))
  done(await world.post(`/bookings/${leadId}/assign-phlebotomist`, { phlebotomistId }))
  done(await world.post(`/bookings/${leadId}/assign-phlebotomist`, { phlebotomistId: otherPhlebotomistId }))
  done(await world.post(`/bookings/${leadId}/send-phlebotomist`))
  for (const step of ['arrive', 'collect-sample', 'submit-sample']) {
    done(await world.post(`/bookings/${leadId}/${step}`))
  }
  const wrong = done(await world.post(`/bookings/${leadId}/bill`))
  done(await world.post(`/bills/${wrong.billId}/delete`))
  const { billId } = done(await world.post(`/bookings/${leadId}/bill`))
  done(await world.post(`/bills/${billId}/send`))
  const { reportId } = done(await world.post(`/bills/${billId}/reports`, {}))
  done(await world.putPdf(`/reports/${reportId}/upload`))
  done(await world.post(`/reports/${reportId}/sign-off`))
  done(await world.post(`/reports/${reportId}/send`))
  done(await world.putPdf(`/reports/${reportId}/amend`))
  const cancelled = await world.createBooking({ integratorID: 'CRM-1' })
  done(await world.post(`/bookings/${cancelled}/cancel`))
}

test('all 17 events reach a receiver from a real action, signed, as the contract says, with the integratorID', async () => {
  await liveThroughAll()
  const recorded = await world.eventTypes()
  expect([...new Set(recorded)].sort()).toEqual([...EVENT_TYPES].sort())
  const requests = await receiver.arrived(recorded.length, 20_000)
  const seen = new Map<string, any[]>()
  for (const { body, headers } of requests) {
    new Webhook(webhook.secret).verify(body, headers as Record<string, string>)
    expect(body.length).toBeLessThanOrEqual(20_000)
    const event = JSON.parse(body.toString('utf8'))
    client.checkSchema(schemaOf(event.type), event)
    expect(event.integratorID).toBe('CRM-1')
    seen.set(event.type, [...(seen.get(event.type) ?? []), event])
  }
  expect([...seen.keys()].sort()).toEqual([...EVENT_TYPES].sort())
  expect(
    [...seen.values()]
      .flat()
      .map(({ type }) => type)
      .sort(),
  ).toEqual(recorded.sort())
  const [report] = seen.get('report.send')!
  const file = await fetch(report.data.message.attachmentUrl)
  expect(Buffer.from(await file.arrayBuffer())).toEqual(PDF)
})

function schemaOf(type: string): string {
  const name = type.split(/[._]/).map((word) => word[0]!.toUpperCase() + word.slice(1))
  return `#/components/schemas/${name.join('')}Event`
}
