/**
 * Proves of the decisions: "A tenant can't see, change, or learn of the existence of anything that is not its own."
 * The table is in tenancy-table.ts; each line here is one field of one operation in one mode.
 */
import { createHash } from 'node:crypto'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { client, startTestApp, type CallOptions, type TestApp } from '../support/app.ts'
import { buildLab, buildParty, buildPatient, buildTelecaller, subscribeBody } from '../support/builders.ts'
import { arbitraryOf, definitionsOf, type Schema } from '../support/contract-arbitraries.ts'
import { buildTenant, requestOtp, subscribe, unknownId, type Tenant } from '../fuzz/fuzz-world.ts'
import { CLIENT_HINTS, type Prepared } from '../fuzz/operation-hints.ts'
import { areToldApart, medianDifference } from './answer-times.ts'
import { idFieldsOf, malformed, NO_TEXTS, withField, type IdField, type IdKind } from './tenancy-table.ts'

type Party = 'corporateUser' | 'organization'
const MODES = ['catch_all', 'corporateUser', 'organization'] as const
type Mode = (typeof MODES)[number]

let app: TestApp
let tenants: Record<Mode, Tenant>
let strangers: Record<Mode, Tenant>
let cells = 0
/** Calls of each kind by which another account's id must not be told from nobody's (`make bench-foreign-ids`); 0: times are not looked at. */
const SAMPLES = Number(process.env.ID_SAMPLES ?? 0)
const CONTROL_MS = Number(process.env.ID_CONTROL_MS ?? 0)
const differences: number[] = []
/** Which column says whose a row is, by table. */
let ownedColumns: { name: string; col: string }[] | undefined

beforeAll(async () => {
  app = await startTestApp({ serves: { client: true, operator: false } })
  const build = (mode: Mode) => buildTenant(app, mode === 'catch_all' ? 'catch_all' : 'party_scoped')
  const all = async () => ({
    catch_all: await build('catch_all'),
    corporateUser: await build('corporateUser'),
    organization: await build('organization'),
  })
  tenants = await all()
  strangers = await all()
})
afterAll(async () => {
  console.log(`tenancy: ${cells} cells of ${fields.length} fields in ${MODES.length} modes`)
  const largest = Math.max(...differences.map(Math.abs))
  if (SAMPLES)
    console.log(
      `tenancy: ${differences.length} fields by ${SAMPLES} times, medians differ by ${largest.toFixed(2)} ms at most`,
    )
  await app.close()
})

const fields = idFieldsOf(client)

/** A request that is taken as it stands, and the id that the field has in it. */
interface Base {
  options: CallOptions
  path: Record<string, string>
  own: string
}

async function baseOf(field: IdField, mode: Mode): Promise<Base> {
  const { operation, place, path } = field
  const tenant = tenants[mode]
  const prepared = await CLIENT_HINTS[operation.operationId]!(tenant, app)
  const query: Record<string, string | undefined> = { ...prepared.query }
  const own = await ownId(field, tenant, prepared)
  const isOfWebhook = prepared.path !== undefined || 'webhookId' in { ...prepared.query, ...prepared.given }
  if (mode !== 'catch_all' && ('corporateUser' in query || 'organization' in query) && !isOfWebhook) {
    const party: Party = mode
    delete query[party === 'corporateUser' ? 'organization' : 'corporateUser']
    query[party] = party === 'corporateUser' ? tenant.corporates[0]! : tenant.doctors[0]!
  }
  if (place === 'query') query[path] ??= own
  const body = bodyOf(operation, prepared)
  return {
    path: prepared.path ?? {},
    own: place === 'query' ? (prepared.query?.[path] ?? own) : own,
    options: {
      token: operation.needsToken ? tenant.account.token : undefined,
      query,
      headers: prepared.headers ?? {},
      ...(body === undefined ? {} : { body: place === 'body' ? withField(body, path, own) : body }),
    },
  }
}

function bodyOf(operation: IdField['operation'], { given = {}, fix }: Prepared): Record<string, unknown> | undefined {
  const schema = (operation as { requestBody?: { content: Record<string, { schema: Schema }> } }).requestBody?.content[
    'application/json'
  ]?.schema
  if (!schema) return undefined
  const optional = ['contact', 'email', 'barCode', 'tests', 'packages', 'customFields', 'paymentMethod', 'assignedTo', 'corporateUser', 'organization', 'referredOrganization', 'referredHospitalOrganization', 'doctor', 'hospital', 'rate_list_type', 'mapped_tests', 'mapped_packages'] // prettier-ignore
  const without = Object.fromEntries(optional.map((name) => [name, null]))
  const usable = { ...given, ...without, ...(operation.operationId === 'requestLoginOtp' ? given : {}) }
  const [body] = fc.sample(arbitraryOf(usable, definitionsOf(client.document), schema), { seed: 3, numRuns: 20 })
  const sound = { ...(body as Record<string, unknown>) }
  if (operation.operationId === 'createPreBooking') sound.unmapped_tests = ['Serum iron']
  return fix ? fix(sound) : sound
}

async function ownId({ kind, path, place }: IdField, tenant: Tenant, prepared: Prepared): Promise<string> {
  const { given = {} } = prepared
  if (place === 'path') return prepared.path![path]!
  if (kind === 'webhook' && place === 'query') return prepared.query![path]!
  if (MADE.has(kind) || kind === 'client') return String(fc.sample(given[path]!, { numRuns: 1 })[0])
  return kind === 'organization' ? tenant.doctors[0]! : idOf(kind, tenant)
}

/** Each request needs one of its own. */
const MADE = new Set<IdKind>(['webhook', 'event', 'recovery', 'entry', 'refreshToken', 'otpToken'])

/** An id of the kind that the tenant has. */
function idOf(kind: IdKind, tenant: Tenant): string {
  switch (kind) {
    case 'lab':
      return tenant.labs[0]!.id
    case 'corporate':
      return tenant.corporates[0]!
    case 'organization':
    case 'doctor':
      return tenant.doctors[0]!
    case 'hospital':
      return tenant.hospitals[0]!
    case 'telecaller':
      return tenant.telecallers[0]!
    case 'test':
      return tenant.tests[0]!.id
    case 'service':
      return tenant.tests[0]!.serviceId!
    case 'package':
      return tenant.packages[0]!.id
    case 'client':
      return tenant.account.clientId
    case 'leadSource':
      return tenant.leadSources[0]!
    case 'rateList':
      return tenant.rateLists[0]!
    default:
      throw new Error(`${kind} is made, not had`)
  }
}

/** What others have, and what the caller had: each must look like what nobody has. */
async function strangeIds({ kind, operation, path }: IdField, mode: Mode): Promise<[kind: string, value: string][]> {
  const [tenant, stranger] = [tenants[mode], strangers[mode]]
  const otherMode = strangers[mode === 'catch_all' ? 'corporateUser' : 'catch_all']
  switch (kind) {
    case 'webhook': {
      const gone = await subscribe(app, tenant)
      await app.call('DELETE', `/client/events/deleteEvent/${gone.id}`, {
        token: tenant.account.token,
        query: gone.query,
      })
      const ofOtherLab = await app.call('POST', '/client/events/subscribe', {
        token: tenant.account.token,
        body: subscribeBody(tenant.labs[1]!, await freshParty(tenant)),
      })
      const others: [string, string][] = [
        ['of another account', (await subscribe(app, stranger)).id],
        ['of an account of the other mode', (await subscribe(app, otherMode)).id],
        ['of another lab', ofOtherLab.body.data._id],
      ]
      // The log keeps what was sent to a webhook that is gone.
      if (path !== 'webhookId') others.push(['deleted', gone.id])
      if (mode !== 'catch_all') others.push(['of another party', (await subscribe(app, tenant)).id])
      return others
    }
    case 'event':
    case 'recovery':
    case 'entry': {
      const madeBy = async (owner: Tenant) => {
        const name = { event: 'getDelivery', recovery: 'getRecovery', entry: 'walkSandboxEntry' }[kind]
        const { path: ids = {}, given = {} } = await CLIENT_HINTS[name]!(owner, app)
        return ids.eventId ?? ids.recoveryId ?? String(fc.sample(given.leadId!, { numRuns: 1 })[0])
      }
      return [
        ['of another account', await madeBy(stranger)],
        ['of the other mode', await madeBy(otherMode)],
      ]
    }
    case 'refreshToken': {
      const { clientId: clientID, clientSecret } = stranger.account
      const { body } = await app.call('POST', '/client/auth/token', { body: { clientID, clientSecret } })
      return [['of another account', body.refreshToken]]
    }
    case 'otpToken': {
      const { contact } = await buildPatient(app, stranger.account)
      return [['of another account', (await requestOtp(app, stranger.account, contact)).otpToken]]
    }
    case 'telecaller': {
      const gone = await buildTelecaller(app, tenant.account)
      await app.database.knex('telecallers').where({ id: gone.id }).update({ active: false })
      return [
        ['of another account', idOf(kind, stranger)],
        ['deactivated', gone.id],
      ]
    }
    case 'lab': {
      const isForListing = !['createEntry', 'createPreBooking', 'subscribeWebhook', 'listTests', 'listPackages'].includes(operation.operationId) // prettier-ignore
      const closed = await buildLab(app, isForListing ? stranger.account : tenant.account, { active: false })
      return [
        ['of another account', idOf(kind, stranger)],
        ['of the other mode', idOf(kind, otherMode)],
        ['closed', closed.id],
      ]
    }
    case 'service':
      return [
        ['of another account', stranger.tests[0]!.serviceId!],
        ['a test of ours', tenant.tests[0]!.id],
      ]
    case 'test':
      return [
        ['of another account', idOf(kind, stranger)],
        ['a package', tenant.packages[0]!.id],
        ['a lab', tenant.labs[0]!.id],
      ]
    case 'package':
      return [
        ['of another account', idOf(kind, stranger)],
        ['a test', tenant.tests[0]!.id],
      ]
    case 'leadSource':
    case 'rateList':
      return [['of another list', kind === 'leadSource' ? tenant.rateLists[0]! : tenant.leadSources[0]!]]
    default:
      return [
        ['of another account', idOf(kind, stranger)],
        ['of the other mode', idOf(kind, otherMode)],
        ['a lab', tenant.labs[0]!.id],
      ]
  }
}

async function freshParty(tenant: Tenant): Promise<Record<string, string>> {
  if (tenant.mode === 'catch_all') return {}
  return { corporateUser: (await buildParty(app, tenant.account, 'corporate')).id }
}

async function send({ operation, place, path }: IdField, base: Base, value: unknown) {
  cells += 1
  const values = place === 'path' ? { ...base.path, [path]: encodeURIComponent(String(value)) } : base.path
  const url = operation.path.replace(/\{([^}]+)\}/g, (_, name: string) => values[name]!)
  const options: CallOptions = { ...base.options }
  if (place === 'query') options.query = { ...base.options.query, [path]: String(value) }
  if (place === 'body') options.body = withField(base.options.body as Record<string, unknown>, path, value)
  return app.call(operation.method, url, options)
}

/** The answer without what is each request's own; a 400 ends with the id that was sent. */
function lookOf(answer: { status: number; body: any }, sent: unknown): string {
  const { requestId: _, ...body } = answer.body
  const details = String(body.error?.details)
  const look = details.endsWith(` ${sent}`) ? `${details.slice(0, -String(sent).length)}<id>` : details
  return JSON.stringify({ ...body, status: answer.status, error: { ...body.error, details: look } })
}

/** Every row that the tenants own. */
async function checksum(owners: Tenant[]): Promise<string> {
  const { knex } = app.database
  const accountIds = owners.map(({ account }) => account.id)
  const webhookIds = (await knex('webhooks').whereIn('account_id', accountIds).select('id')).map(({ id }) => id)
  ownedColumns ??= (
    await knex.raw(
      `SELECT table_name AS name, column_name AS col FROM information_schema.columns
        WHERE table_schema = DATABASE() AND column_name IN ('account_id', 'webhook_id') ORDER BY table_name, column_name`,
    )
  )[0]
  const hash = createHash('sha256')
  const seen = new Set<string>()
  for (const { name, col } of ownedColumns!) {
    if (seen.has(name)) continue
    seen.add(name)
    const rows = await knex(name).whereIn(col, col === 'account_id' ? accountIds : webhookIds)
    hash.update(name + rows.map((row) => JSON.stringify(row)).sort().join('\n')) // prettier-ignore
  }
  return hash.digest('hex')
}

function nobodysOf(kind: IdKind): string {
  if (kind === 'leadSource' || kind === 'rateList') return 'Nowhere'
  return kind === 'event' ? `evt_${unknownId(app)}` : unknownId(app)
}

/** They have nothing to act on: the delivery waits, and no event was missed. */
const WITHOUT_SUCCESS = new Set(['redeliver', 'getMissedEvent'])

const BY_LAB_RULE = new Set(['lab'])
const expectedOf = ({ place, kind, operation }: IdField): number[] => {
  if (place === 'path' || kind === 'webhook') return [404]
  if (BY_LAB_RULE.has(kind)) return [403]
  if (['client', 'refreshToken', 'otpToken'].includes(kind)) return [401]
  return operation.operationId === 'listLabs' ? [] : [400]
}

describe.each(MODES)('in mode %s', (mode) => {
  const named = fields.map((field) => ({
    ...field,
    name: `${field.operation.operationId} ${field.place} ${field.path}`,
  }))

  test.each(named)('$name', async (field) => {
    const base = await baseOf(field, mode)
    const strange = await strangeIds(field, mode)
    const before = await checksum(Object.values(strangers))
    const nobodys = nobodysOf(field.kind)
    const unknown = await send(field, base, nobodys)
    expect(expectedOf(field)).toContain(unknown.status)
    const look = lookOf(unknown, nobodys)

    for (const [what, value] of [...strange, ...malformed(base.own)]) {
      const answer = await send(field, base, value)
      expect([what, lookOf(answer, value)]).toEqual([what, look])
    }
    if (SAMPLES) {
      const [[, foreign]] = strange as [[string, string]]
      const held = async () => {
        await send(field, base, foreign)
        if (CONTROL_MS) await new Promise((resolve) => setTimeout(resolve, CONTROL_MS))
      }
      const told = await areToldApart(async () => {
        await app.database.knex('crm_budgets').where({ account_id: tenants[mode].account.id }).delete()
        return medianDifference(SAMPLES, held, () => send(field, base, nobodys))
      })
      differences.push(told.differenceMs)
      expect(told).toMatchObject({ isTold: false })
    }
    const [empty, noTexts] = [
      await send(field, base, field.place === 'path' ? ' ' : ''),
      field.place === 'body' ? NO_TEXTS : [],
    ]
    expect([400, 401, 403, 404]).toContain(empty.status)
    for (const [what, value] of noTexts) {
      expect([what, (await send(field, base, value)).status]).toEqual([what, 400])
    }
    expect(await checksum(Object.values(strangers))).toBe(before)

    const own = await send(field, base, base.own)
    const isPartyOfAnother = field.path === 'corporateUser' || field.path === 'organization'
    const { operationId } = field.operation
    const takesIt = !WITHOUT_SUCCESS.has(operationId) && (!isPartyOfAnother || operationId === 'createEntry')
    if (takesIt) expect([own.status, own.body]).toEqual([200, own.body])
    else expect([200, 400, 404, 409]).toContain(own.status)
  })
})
