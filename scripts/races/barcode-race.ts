/** Pre-bookings of two accounts that come at the same moment with one barcode: one of them has it. */
import { updateOperatorValues } from '../../src/billing/operator-lists-repository.ts'
import { atOnce } from './at-once.ts'
import type { Race, RaceOptions, RaceWorld } from './race-world.ts'
import { accepted, Tally } from './tally.ts'

const CALLS = 64
const SOURCE = 'Partner'
/** Around a barcode, and no part of it. */
const BLANKS = ['', ' ', '\t', '  ']

const preBooking = (labID: string, barCode: string, n: number) => ({
  labID,
  barCode,
  patient_details: { first_name: 'Farhan', gender: 'male', age: 51, age_type: 'year' },
  integrator_id: `PB-${n}`,
  lead_source: SOURCE,
  unmapped_tests: ['Serum bilirubin', 'Ferritin'],
})

/** All the same, or in so many spellings that are barcodes of their own: they are compared by bytes. */
function spellingsOf(round: number): string[] {
  const base = `Race-${round}-é`
  if (round % 2 === 0) return [base]
  return [base, base.toUpperCase(), base.normalize('NFD'), `${base} x`]
}

async function run(world: RaceWorld, { rounds, say }: RaceOptions): Promise<Tally> {
  const tally = new Tally()
  const tenants = await world.addTenants(2)
  for (const { accountId } of tenants) {
    await world.arena.database.transaction((trx) => updateOperatorValues(trx, accountId, 'lead_source', [SOURCE]))
  }
  let kept = 0
  for (let round = 0; round < rounds; round++) {
    const spellings = spellingsOf(round)
    const codeOf = (n: number) => spellings[(n >> 1) % spellings.length]!
    const calls = Array.from({ length: CALLS }, (_, n) => {
      const { token, labId } = tenants[n % 2]!
      const barCode = BLANKS[n % BLANKS.length] + codeOf(n) + BLANKS[(n >> 2) % BLANKS.length]
      return { url: world.url(n), path: '/client/billing/create', token, body: preBooking(labId, barCode, n) }
    })
    const answers = await atOnce(calls)
    const { length } = spellings
    tally.exactly(answers, { 200: length, 400: CALLS - length }, `round ${round}`)
    const won = new Map(answers.flatMap(({ status, body }, n) => (status === 200 ? [[codeOf(n), body.preBookingID]] : []))) // prettier-ignore
    const rows = await world.knex('pre_bookings').whereIn('id', accepted(answers).map(({ body }) => body.preBookingID)).select('id', 'barcode') // prettier-ignore
    const isTheirs = rows.length === length && rows.every(({ id, barcode }) => won.get(barcode) === id)
    tally.check(isTheirs, () => `round ${round}: ${JSON.stringify(rows)} for ${JSON.stringify([...won])}`)
    kept += length
    tally.add('rounds')
    if ((round + 1) % 20 === 0) say(`M4: ${round + 1} of ${rounds} rounds`)
  }
  const ids = tenants.map(({ accountId }) => accountId)
  const [stored] = await world.knex('pre_bookings').whereIn('account_id', ids).count({ n: '*' })
  const [items] = await world.knex('pre_booking_items as i').join('pre_bookings as p', 'p.id', 'i.pre_booking_id').whereIn('p.account_id', ids).count({ n: '*' }) // prettier-ignore
  const [loose] = await world.knex('pre_booking_items as i').leftJoin('pre_bookings as p', 'p.id', 'i.pre_booking_id').whereNull('p.id').count({ n: '*' }) // prettier-ignore
  const found = [Number(stored!.n), Number(items!.n), Number(loose!.n)]
  tally.check(`${found}` === `${[kept, 2 * kept, 0]}`, () => `rows, items and loose items ${found} for ${kept} answers`)
  return tally
}

export const BARCODE_RACE: Race = { id: 'M4', title: 'of pre-bookings at once with one barcode one is taken', run }
