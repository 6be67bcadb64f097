/**
 * Amounts: what goes in comes out, what is none is refused, a party's price comes before the standard one, and no total drifts.
 * Reckoned here in whole hundredths.
 */
import type { Tenant } from '../bench/tenants.ts'
import type { Answer } from '../crash/lead-client.ts'
import { newContact, type Race, type RaceOptions, type RaceWorld } from './race-world.ts'
import { Tally } from './tally.ts'

const MOST_PAISE = 999_999_999_999
const VALUES_A_ROUND = 50
const VALUES_A_LEAD = 100
/** Below what an account may call in a minute. */
const LEADS_AN_ACCOUNT = 50
const TESTS = 60
/** Of what the catalogue has: a bill may be of many. */
const PRICE_DIGITS = 9
/** One of so many bills has an item that costs as much as can be. */
const DEAR_EVERY = 10

/** Those that binary fractions have trouble with, and both ends. */
const AWKWARD = [
  0,
  1,
  10,
  29,
  57,
  58,
  115,
  435,
  820,
  1005,
  1999,
  2675,
  11315,
  99_999_999_999,
  MOST_PAISE - 1,
  MOST_PAISE,
]
/** As they stand in JSON. */
const NO_AMOUNTS = ['NaN', 'Infinity', '1e999', '-1e999', '-1', '-0.01', '0.30000000000000004', '1.005', '0.001', '1e-7', '1e15', '10000000000', '"5"', '[5]', '{}'] // prettier-ignore

const textOf = (paise: number) => `${Math.floor(paise / 100)}.${String(paise % 100).padStart(2, '0')}`

/** One number in some of the ways in which JSON may have it. */
function jsonOf(paise: number, n: number): string {
  const text = textOf(paise)
  return [text, `${text}0`, String(Number(text)), `${paise}e-2`][n % 4]!
}

/** @param digits how many it has at most; one as often as twelve */
function paiseOf(random: () => number, digits = 12): number {
  const awkward = AWKWARD.filter((paise) => paise < 10 ** digits)
  if (random() < 0.1) return awkward[Math.floor(random() * awkward.length)]!
  return Math.floor(random() * 10 ** (1 + Math.floor(random() * digits)))
}

/** An amount as the answer has it. */
const isAmount = (value: unknown, paise: number) => value === Number(textOf(paise))

const lead = ({ labId }: Tenant, rest: string) =>
  `{"branchID":"${labId}","integratorID":"CRM-1","first_name":"Asha","contact":"${newContact()}"${rest}}`

const createLead = (world: RaceWorld, tenant: Tenant, rest: string) =>
  world.alone({ path: '/client/crm/lead/create', token: tenant.token, rawBody: lead(tenant, rest) })

const operate = (world: RaceWorld, path: string, rawBody: string, method = 'POST') =>
  world.alone({ method, path: `/operator/${path}`, token: world.operatorKey, rawBody })

async function inAndOut(world: RaceWorld, tally: Tally, values: number, random: () => number): Promise<void> {
  const leads = Math.ceil(values / VALUES_A_LEAD)
  const tenants = await world.addTenants(Math.ceil(leads / LEADS_AN_ACCOUNT))
  for (let n = 0; n < leads; n++) {
    const tenant = tenants[n % tenants.length]!
    const size = Math.min(VALUES_A_LEAD, values - n * VALUES_A_LEAD)
    const costs = Array.from({ length: size }, () => paiseOf(random))
    const [discount, total] = [paiseOf(random), paiseOf(random)]
    const items = costs.map((paise, at) => `{"name":"Test ${at}","cost":${jsonOf(paise, at)}}`)
    const amounts = `"discountAmount":${jsonOf(discount, n)},"totalAmount":${jsonOf(total, n + 1)}`
    const { status, body } = await createLead(world, tenant, `,${amounts},"unmappedTests":[${items}]`)
    tally.check(status === 200, () => `lead ${n}: ${status} ${JSON.stringify(body)}`)
    if (status !== 200) continue
    const shown = await world.call(
      'GET',
      `/operator/accounts/${tenant.accountId}/entries/${body.leadId}`,
      world.operatorKey,
    )
    const rows = await world.knex('entry_items').where({ entry_id: body.leadId }).orderBy('position').select(world.knex.raw('CAST(price AS CHAR) AS text')) // prettier-ignore
    for (const [at, paise] of costs.entries()) {
      const price = shown.body.items[at]?.price
      const isSame = isAmount(price, paise) && rows[at]?.text === textOf(paise)
      tally.check(isSame, () => `${jsonOf(paise, at)} is stored as ${rows[at]?.text} and shown as ${price}`)
      if (isSame) tally.add('values')
    }
    const { discountAmount, totalAmount } = shown.body
    const areSame = isAmount(discountAmount, discount) && isAmount(totalAmount, total)
    tally.check(areSame, () => `${textOf(discount)}, ${textOf(total)} are shown as ${discountAmount}, ${totalAmount}`)
  }
}

/** Each at each place where an integrator or the operator sends one. */
async function refused(world: RaceWorld, tally: Tally, testId: string, scoped: Tenant): Promise<void> {
  const [tenant, other] = (await world.addTenants(2)) as [Tenant, Tenant]
  const places: [string, (amount: string) => Promise<Answer>][] = [
    ['unmappedTests.cost', (amount) => createLead(world, tenant, `,"unmappedTests":[{"name":"X","cost":${amount}}]`)],
    ['unmappedPackages.price', (amount) => createLead(world, tenant, `,"unmappedPackages":[{"name":"X","price":${amount}}]`)], // prettier-ignore
    ['tests.cost', (amount) => createLead(world, tenant, `,"tests":[{"test":"${testId}","cost":${amount}}]`)],
    ['discountAmount', (amount) => createLead(world, other, `,"discountAmount":${amount}`)],
    ['totalAmount', (amount) => createLead(world, other, `,"totalAmount":${amount}`)],
    ['cost of a test', (amount) => operate(world, `labs/${tenant.labId}/tests`, `{"name":"X","code":"X","cost":${amount}}`)], // prettier-ignore
    ['price of a party', (amount) => operate(world, `labs/${scoped.labId}/party-prices`, `{"partyId":"${scoped.corporateId}","test":"${testId}","price":${amount}}`, 'PUT')], // prettier-ignore
  ]
  for (const [place, send] of places) {
    for (const amount of NO_AMOUNTS) {
      const { status } = await send(amount)
      tally.check(status === 400, () => `${place} ${amount}: ${status}`)
      tally.add('400')
    }
  }
  const rows =
    (await world.count('entries', { account_id: tenant.accountId })) +
    (await world.count('tests', { lab_id: tenant.labId }))
  tally.check(rows === 0, () => `${rows} rows of what was refused`)
}

interface Priced {
  id: string
  standard: number
  /** What the party has agreed, where it has. */
  agreed: number | undefined
}

async function prices(world: RaceWorld, tally: Tally, tenant: Tenant, random: () => number): Promise<Priced[]> {
  const { labId, corporateId, accountId } = tenant
  const priced: Priced[] = []
  for (let n = 0; n < TESTS; n++) {
    const [standard, agreed] = [paiseOf(random, PRICE_DIGITS), n % 2 === 0 ? paiseOf(random, PRICE_DIGITS) : undefined]
    const made = await operate(
      world,
      `labs/${labId}/tests`,
      `{"name":"Test ${n}","code":"T${n}","cost":${jsonOf(standard, n)}}`,
    )
    const id = made.body.testId as string
    priced.push({ id, standard, agreed })
    if (agreed === undefined) continue
    const body = `{"partyId":"${corporateId}","test":"${id}","price":${jsonOf(agreed, n)}}`
    const set = await operate(world, `labs/${labId}/party-prices`, body, 'PUT')
    tally.check(
      set.status === 200 && isAmount(set.body.price, agreed),
      () => `a price of ${textOf(agreed)}: ${set.status}`,
    )
  }
  const other = await operate(world, `accounts/${accountId}/parties`, '{"kind":"corporate","name":"Another"}')
  for (const party of [corporateId!, other.body.partyId as string]) {
    const path = `/client/crm/tests?branchID=${labId}&corporateUser=${party}`
    const { body } = await world.alone({ path, token: tenant.token })
    const shown = new Map<string, number>(
      body.tests.map((test: { _id: string; cost: number }) => [test._id, test.cost]),
    )
    for (const { id, standard, agreed } of priced) {
      const paise = party === corporateId ? (agreed ?? standard) : standard
      const isRight = isAmount(shown.get(id), paise)
      tally.check(isRight, () => `${shown.get(id)} instead of ${textOf(paise)}`)
      if (isRight) tally.add('prices')
    }
  }
  return priced
}

/** Bills of many items: some at a price of their own, the others at the party's, or else the standard one. */
async function totals(
  world: RaceWorld,
  tally: Tally,
  tenant: Tenant,
  priced: Priced[],
  bills: number,
  random: () => number,
): Promise<void> {
  // prettier-ignore
  for (let n = 0; n < bills; n++) {
    const size = 1 + Math.floor(random() * 100)
    let paise = 0
    const items = Array.from({ length: size }, (_, at) => {
      const { id, standard, agreed } = priced[Math.floor(random() * priced.length)]!
      const isDear = at === 0 && n % DEAR_EVERY === DEAR_EVERY - 1
      const own = isDear ? MOST_PAISE : random() < 0.5 ? paiseOf(random, PRICE_DIGITS) : undefined
      paise += own ?? agreed ?? standard
      return `{"test":"${id}"${own === undefined ? '' : `,"cost":${jsonOf(own, at)}`}}`
    })
    const discount = Math.floor(random() * Math.min(paise, 1_000_000))
    const body = `{"labID":"${tenant.labId}","firstName":"Asha","corporateUser":"${tenant.corporateId}","discountAmount":${textOf(discount)},"tests":[${items}]}` // prettier-ignore
    const made = await operate(world, `accounts/${tenant.accountId}/bills`, body)
    paise -= discount
    // What no column holds is refused, and never rounded.
    if (paise > MOST_PAISE) {
      tally.check(made.status === 400, () => `a bill of ${textOf(paise)}: ${made.status}`)
      tally.add('too much')
      continue
    }
    const { billId, totalAmount } = made.body
    const row = await world.knex('bills').where({ id: billId ?? '' }).first(world.knex.raw('CAST(total_amount AS CHAR) AS text'))
    const isRight = isAmount(totalAmount, paise) && row?.text === textOf(paise)
    tally.check(isRight, () => `a bill of ${textOf(paise)}: ${made.status}, ${totalAmount}, stored ${row?.text}`)
    if (isRight) tally.add('totals')
  }
}

async function run(world: RaceWorld, { rounds, random, say }: RaceOptions): Promise<Tally> {
  const tally = new Tally()
  const [tenant] = (await world.addTenants(1, { mode: 'party_scoped' })) as [Tenant]
  const priced = await prices(world, tally, tenant, random)
  await refused(world, tally, priced[0]!.id, tenant)
  say('M9: prices and refusals are done')
  await inAndOut(world, tally, rounds * VALUES_A_ROUND, random)
  say('M9: values are done')
  await totals(world, tally, tenant, priced, rounds, random)
  return tally
}

export const MONEY_CHECK: Race = { id: 'M9', title: 'amounts come out as they went in, and totals are exact', run }
