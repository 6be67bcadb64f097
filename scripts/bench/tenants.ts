/**
 * Accounts that call the API: so many that none meets its limit of 60 CRM calls a minute. Each has a lab, two telecallers who
 * take turns, and a token.
 */
import { randomBytes } from 'node:crypto'
import type { Database } from '../../db/connection.ts'
import { createAccessTokens } from '../../src/auth/access-token.ts'
import { seal } from '../../src/crypto.ts'
import { newId } from '../../src/ids.ts'
import { TOKEN_TTL_SECONDS, type BenchWorld } from './bench-world.ts'

export interface Tenant {
  accountId: string
  labId: string
  token: string
  /** A corporate, where the account is party-scoped. */
  corporateId?: string
}

const CALLS_A_MINUTE = 60
const ROWS_A_STATEMENT = 1000

/** Accounts that so many calls within any minute need. */
export function tenantsFor(calls: number): number {
  return Math.ceil(calls / CALLS_A_MINUTE)
}

export async function insertRows(
  database: Database,
  table: string,
  columns: string[],
  rows: unknown[][],
): Promise<void> {
  for (let from = 0; from < rows.length; from += ROWS_A_STATEMENT) {
    const part = rows.slice(from, from + ROWS_A_STATEMENT)
    await database.batch.transaction((send) =>
      send([{ sql: `INSERT INTO ${table} (${columns.join(', ')}) VALUES ?`, values: [part] }, { sql: 'COMMIT' }]),
    )
  }
}

export interface TenantOptions {
  mode?: 'catch_all' | 'party_scoped'
  timeZone?: string
  telecallers?: number
  tokenSeconds?: number
}

export async function addTenants(
  { database, clock, keys }: Pick<BenchWorld, 'database' | 'clock' | 'keys'>,
  count: number,
  {
    mode = 'catch_all',
    timeZone = 'Asia/Kolkata',
    telecallers = 2,
    tokenSeconds = TOKEN_TTL_SECONDS,
  }: TenantOptions = {},
): Promise<Tenant[]> {
  const now = clock.now()
  const id = () => newId(now.getTime())
  const tokens = createAccessTokens(keys, clock, tokenSeconds)
  const tenants: Tenant[] = []
  for (let n = 0; n < count; n++) {
    const accountId = id()
    const { token } = await tokens.issue(accountId)
    const tenant = { accountId, labId: id(), token }
    tenants.push(mode === 'party_scoped' ? { ...tenant, corporateId: id() } : tenant)
  }
  const each = <T>(row: (tenant: Tenant, n: number) => T) => tenants.map(row)
  await insertRows(database, 'accounts', ['id', 'name', 'mode', 'time_zone', 'admin_email', 'created_at'], each(({ accountId }, n) => [accountId, `Account ${n}`, mode, timeZone, 'admin@lab.example.in', now])) // prettier-ignore
  await insertRows(database, 'labs', ['id', 'account_id', 'name', 'contact', 'created_at'], each(({ accountId, labId }, n) => [labId, accountId, `Lab ${n}`, '2025461234', now])) // prettier-ignore
  await insertRows(database, 'telecallers', ['id', 'account_id', 'name', 'active', 'created_at'], tenants.flatMap(({ accountId }) => Array.from({ length: telecallers }, (_, n) => [id(), accountId, `Telecaller ${n + 1}`, true, now]))) // prettier-ignore
  await insertRows(database, 'telecaller_turns', ['account_id'], each(({ accountId }) => [accountId])) // prettier-ignore
  await insertRows(database, 'parties', ['id', 'account_id', 'kind', 'name', 'created_at'], tenants.flatMap(({ accountId, corporateId }) => (corporateId ? [[corporateId, accountId, 'corporate', 'A corporate', now]] : []))) // prettier-ignore
  return tenants
}

/** So many tests in each lab, for each of which the tenant's corporate has a price of its own. */
export async function addCatalogue({ database, clock }: BenchWorld, tenants: Tenant[], tests: number): Promise<void> {
  const now = clock.now()
  for (const { accountId, labId, corporateId } of tenants) {
    const ids = Array.from({ length: tests }, () => newId(now.getTime()))
    await insertRows(database, 'tests', ['id', 'account_id', 'lab_id', 'name', 'code', 'cost', 'service_id', 'created_at'], ids.map((id, n) => [id, accountId, labId, `Serum test number ${n}`, `T${n}`, 100 + (n % 900), `SRV-${n}`, now])) // prettier-ignore
    await insertRows(database, 'party_test_prices', ['party_id', 'test_id', 'cost'], ids.map((id, n) => [corporateId, id, 50.5 + (n % 900)])) // prettier-ignore
  }
}

/** A webhook for each tenant's lab, as subscribe writes it, each with an endpoint of its own at the receiver. */
export async function addTenantWebhooks(world: BenchWorld, tenants: Tenant[]): Promise<void> {
  const { database, clock, keys } = world
  const now = clock.now()
  const ids = tenants.map(() => newId(now.getTime()))
  const each = <T>(row: (tenant: Tenant, id: string, n: number) => T) =>
    tenants.map((tenant, n) => row(tenant, ids[n]!, n))
  await insertRows(database, 'webhooks', ['id', 'account_id', 'lab_id', 'endpoint', 'state', 'active_from', 'created_at', 'updated_at'], each(({ accountId, labId }, id, n) => [id, accountId, labId, world.url(`ok/${n}`), 'active', now, now, now])) // prettier-ignore
  await insertRows(
    database,
    'lanes',
    ['webhook_id'],
    each((_, id) => [id]),
  )
  await insertRows(database, 'webhook_events', ['webhook_id', 'event_type', 'lab_id'], each(({ labId }, id) => [id, 'lead.created', labId])) // prettier-ignore
  await insertRows(database, 'webhook_secrets', ['webhook_id', 'id', 'sealed', 'created_at'], each((_, id) => [id, newId(now.getTime()), seal(keys, randomBytes(32), id), now])) // prettier-ignore
}
