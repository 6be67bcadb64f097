/** Logins that come at the same moment with one password, and refreshes with one token: one of them is taken. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { claimClient, insertClientSecret } from '../../src/accounts/clients-repository.ts'
import { hashSecret, newSecret } from '../../src/crypto.ts'
import { newId } from '../../src/ids.ts'
import { insertPatient } from '../../src/patients/patients-repository.ts'
import type { Tenant } from '../bench/tenants.ts'
import { until } from '../crash/crash-arena.ts'
import { atOnce } from './at-once.ts'
import { newContact, type Race, type RaceOptions, type RaceWorld } from './race-world.ts'
import { accepted, Tally } from './tally.ts'

const LOGINS = 50
const REFRESHES = 20

/** What the processes, which have no SMS gateway, wrote to their file. */
export async function sentCode({ folder }: Pick<RaceWorld, 'folder'>, contact: string): Promise<string> {
  const file = join(folder, 'outbox', 'sms.ndjson')
  let code: string | undefined
  const isThere = () => {
    const lines = existsSync(file) ? readFileSync(file, 'utf8').trimEnd().split('\n') : []
    const sms = lines.findLast((line) => line.endsWith('}') && JSON.parse(line).to === contact)
    code = sms && /\b\d{6}\b/.exec(JSON.parse(sms).text)?.[0]
    return code !== undefined
  }
  await until('the one-time password is sent', isThere)
  return code!
}

/** @returns its client */
async function addClient({ arena }: RaceWorld, { accountId }: Tenant) {
  const createdAt = arena.clock.now()
  const id = () => newId(createdAt.getTime())
  const clientSecret = newSecret()
  const clientID = await arena.database.transaction(async (trx) => {
    const clientId = await claimClient(trx, accountId, id(), createdAt)
    await insertClientSecret(trx, { id: id(), clientId, secretHash: hashSecret(clientSecret), createdAt })
    return clientId
  })
  return { clientID, clientSecret }
}

async function login(world: RaceWorld, tally: Tally, { accountId, token }: Tenant, where: string): Promise<void> {
  const contact = newContact()
  const createdAt = world.arena.clock.now()
  await insertPatient(world.knex, { id: newId(createdAt.getTime()), accountId, contact, name: 'Asha', createdAt })
  const asked = await world.alone({ path: '/client/patient/getLoginOTP', token, body: { contact } })
  const body = { otp: await sentCode(world, contact), otpToken: asked.body.otpToken }
  const call = (n: number) => ({ url: world.url(n), path: '/client/patient/verifyLoginOTP', token, body })
  tally.exactly(await atOnce(Array.from({ length: LOGINS }, (_, n) => call(n))), { 200: 1, 401: LOGINS - 1 }, `${where}: logins`) // prettier-ignore
}

async function refresh(
  world: RaceWorld,
  tally: Tally,
  client: Awaited<ReturnType<typeof addClient>>,
  where: string,
): Promise<void> {
  const { clientID } = client
  const path = '/client/auth/token/refresh'
  const { refreshToken } = (await world.alone({ path: '/client/auth/token', body: client })).body
  const answers = await atOnce(
    Array.from({ length: REFRESHES }, (_, n) => ({ url: world.url(n), path, body: { clientID, refreshToken } })),
  )
  tally.exactly(answers, { 200: 1, 401: REFRESHES - 1 }, `${where}: refreshes`)
  const [won] = accepted(answers)
  if (!won) return
  // Those that lost have ended nothing: both new tokens serve.
  const used = await world.alone({ path: '/client/labs', token: won.body.authToken })
  const again = await world.alone({ path, body: { clientID, refreshToken: won.body.refreshToken } })
  const isServed = again.status === 200 && (used.status === 200 || used.status === 429)
  tally.check(isServed, () => `${where}: the new tokens are answered ${used.status} and ${again.status}`)
}

async function run(world: RaceWorld, { rounds, say }: RaceOptions): Promise<Tally> {
  const tally = new Tally()
  const [tenant] = (await world.addTenants(1)) as [Tenant]
  const client = await addClient(world, tenant)
  for (let round = 0; round < rounds; round++) {
    await login(world, tally, tenant, `round ${round}`)
    await refresh(world, tally, client, `round ${round}`)
    tally.add('rounds')
    if ((round + 1) % 20 === 0) say(`M8: ${round + 1} of ${rounds} rounds`)
  }
  return tally
}

export const LOGIN_RACE: Race = { id: 'M8', title: 'a one-time password and a refresh token serve once', run }
