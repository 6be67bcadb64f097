/**
 * The demo's second chapter: an endpoint that fails, its retries, both mails, the deactivated list, reactivation, and the
 * next event. The code is that of production; only the periods are shorter, by settings.
 */
import { readFileSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import { monotonicMs } from '../src/clock.ts'
import type { Config } from '../src/config.ts'
import { onStopRequest } from '../src/stop-request.ts'
import { startDemoService, type DemoService } from './demo-service.ts'
import { eventOf, freshContact, Integrator, must, step, verify, type Json } from './demo-steps.ts'
import type { DevTls } from './dev-tls.ts'
import { startHttpsReceiver, type HttpsReceiver } from './https-receiver.ts'

/** As long as hours are in production, in seconds. */
const SETTINGS = {
  WARN_AFTER_SECONDS: '3',
  WARN_BY_CLOCK_SECONDS: '6',
  DELETE_AFTER_SECONDS: '6',
  RETRY_SCHEDULE: '1,1,1.5,1.5,1.5,1.5,1.5,1.5',
}
const STEP_TIMEOUT_MS = 20_000

interface Scene {
  service: DemoService
  integrator: Integrator
  receiver: HttpsReceiver
  labID: string
  webhook: Json
}

export async function tellLifeCycle(config: Config, tls: DevTls): Promise<void> {
  console.log('\nWhat becomes of an endpoint that fails (12 and 24 hours are 3 and 6 seconds here)\n')
  let status = 503
  const receiver = await startHttpsReceiver(tls, () => ({ status }))
  const starting = startDemoService(config, tls, SETTINGS)
  const stop = async () => {
    await starting.then(
      (service) => service.stop(),
      () => {},
    )
    await receiver.close()
  }
  onStopRequest((why) => {
    process.stderr.write(`\ndemo: ${why}: stopping …\n`)
    void stop().finally(() => process.exit(1))
  })
  try {
    const service = await step('start a service with these periods', async () => {
      const started = await starting
      return [started, `${started.baseUrl}, on a database of its own`]
    })
    const scene = await open(service, receiver)
    const firstLead = await fail(scene)
    await readMails(scene)
    const lostLead = await whileDeleted(scene)
    await recover(scene, [firstLead, lostLead], () => (status = 204))
  } finally {
    await stop()
  }
}

async function open(service: DemoService, receiver: HttpsReceiver): Promise<Scene> {
  const integrator = new Integrator(service.baseUrl)
  const { clientID, clientSecret, labs } = service.demo.catchAll
  const answer = await integrator.call('POST', '/client/auth/token', { clientID, clientSecret })
  integrator.useToken(answer.authToken)
  const labID = labs[0]!.labID
  const webhook: Json = await step('register a webhook', async () => {
    const endpoint = `${receiver.url}/broken`
    const body = { labID, events: ['lead.created'], endpoint, protocol: 'https' }
    const { data } = await integrator.call('POST', '/client/events/subscribe', body)
    return [data, `lead.created -> ${endpoint}, which answers 503`]
  })
  return { service, integrator, receiver, labID, webhook }
}

async function pushLead({ integrator, labID }: Scene, integratorID: string): Promise<string> {
  const body = { branchID: labID, first_name: 'Asha', contact: freshContact(), integratorID }
  return (await integrator.call('POST', '/client/crm/lead/create', body)).leadId
}

/** @returns the lead of which nobody wanted to hear */
async function fail(scene: Scene): Promise<string> {
  const { receiver, webhook } = scene
  const leadId = await step('push a lead', async () => {
    const pushed = await pushLead(scene, 'demo-fails')
    const request = await eventOf(receiver, pushed)
    return [pushed, `sent as ${request.headers['webhook-id']}, answered 503`]
  })
  await step('wait for its retries', async () => {
    const attempts = (await receiver.arrived(3, STEP_TIMEOUT_MS)).slice(0, 3)
    const ids = new Set(attempts.map(({ headers }) => headers['webhook-id']))
    must(ids.size === 1, 'a retry came under another webhook-id')
    for (const attempt of attempts) verify(webhook.secret, attempt)
    const gaps = attempts.slice(1).map(({ atMs }, n) => `+${((atMs - attempts[n]!.atMs) / 1000).toFixed(1)} s`)
    return [undefined, `${gaps.join(', ')}: the same webhook-id, each signed anew`]
  })
  return leadId
}

async function readMails({ service, receiver, webhook }: Scene): Promise<void> {
  await step('read the warning mail', async () => {
    const mail = await mailOf(service, 'Webhook failing')
    must(mail.text.includes(`Endpoint: ${webhook.endpoint}`), 'the warning does not name the endpoint')
    return [undefined, `to ${mail.to}: ${factsOf(mail)}`]
  })
  await step('read the deletion mail', async () => {
    const mail = await mailOf(service, 'Webhook deleted')
    const failed = Number(/^Failed attempts: (\d+)$/m.exec(mail.text)?.[1])
    must(failed === receiver.requests.length, `the mail counts ${failed} attempts of ${receiver.requests.length}`)
    return [undefined, `to ${mail.to}: ${factsOf(mail)}`]
  })
}

/** Without a gateway a mail goes to a file; the daemon looks for due ones every few seconds. */
async function mailOf(service: DemoService, subject: string): Promise<Json> {
  const untilMs = monotonicMs() + STEP_TIMEOUT_MS
  while (monotonicMs() < untilMs) {
    const found = linesOf(service.mailFile).find((mail) => mail.subject.startsWith(subject))
    if (found) return found
    await delay(50)
  }
  throw new Error(`no mail "${subject}" within ${STEP_TIMEOUT_MS / 1000} s`)
}

function linesOf(file: string): Json[] {
  try {
    const whole = readFileSync(file, 'utf8').split('\n').slice(0, -1)
    return whole.map((line) => JSON.parse(line))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  }
}

function factsOf(mail: Json): string {
  const fact = (name: string) => new RegExp(`^${name}: (.*)$`, 'm').exec(mail.text)?.[1]
  return `"${mail.subject}", ${fact('Failed attempts')} failed attempts, ${fact('Last error')}`
}

/** @returns the lead that was pushed meanwhile */
async function whileDeleted(scene: Scene): Promise<string> {
  const { integrator, labID, webhook } = scene
  await step('look for it in the lists', async () => {
    const active = await integrator.call('GET', `/client/events/getAllEvents?labID=${labID}`)
    must(!active.data.some((row: Json) => row._id === webhook._id), 'the deleted webhook is still listed as active')
    const { data } = await integrator.call('GET', `/client/events/getDeactivatedEvents?labID=${labID}`)
    const row = data.find((other: Json) => other._id === webhook._id)
    must(row, 'the deleted webhook is not in the deactivated list')
    const seconds = (Date.parse(row.deactivatedAt) - Date.parse(row.firstFailureAt)) / 1000
    return [
      undefined,
      `deactivated after ${seconds.toFixed(1)} s and ${row.failedAttempts} failed attempts: ${row.lastError}`,
    ]
  })
  return step('push a lead meanwhile', async () => {
    return [await pushLead(scene, 'demo-meanwhile'), 'it is stored, and nobody is told']
  })
}

async function recover(scene: Scene, lostLeads: string[], mend: () => void): Promise<void> {
  const { integrator, receiver, labID, webhook } = scene
  const sentBefore = receiver.requests.length
  await step('mend the endpoint and reactivate', async () => {
    mend()
    const { data } = await integrator.call('PATCH', `/client/events/reactivateEvent/${webhook._id}?labID=${labID}`)
    must(data._id === webhook._id, 'reactivation answered with another webhook')
    const active = await integrator.call('GET', `/client/events/getAllEvents?labID=${labID}`)
    must(
      active.data.some((row: Json) => row._id === webhook._id),
      'the reactivated webhook is not listed',
    )
    return [undefined, 'back in the list, same id, same secret, clean record']
  })
  await step('push the next lead and receive it', async () => {
    const leadId = await pushLead(scene, 'demo-next')
    const request = await eventOf(receiver, leadId)
    const event = verify(webhook.secret, request)
    must(event.integratorID === 'demo-next', 'the event is not that of the lead')
    return [undefined, `${event.type}, ${request.headers['webhook-id']}, signature verified`]
  })
  await step('look at what else was sent', async () => {
    // Longer than a lane takes to send what waits.
    await delay(1500)
    const late = receiver.requests
      .slice(sentBefore)
      .map(({ body }) => JSON.parse(body.toString('utf8')).data.lead.leadId)
    must(
      late.length === 1 && !late.some((leadId) => lostLeads.includes(leadId)),
      'an event of before was sent after all',
    )
    return [undefined, 'nothing: events of the time in between are not sent later']
  })
}
